"""Stock rerankers as rows of comparisons: what does training bring over a model that anyone can download?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from typing_extensions import override

from icalib.core.stage_cache import Stage, StageName
from icalib.data.schema import Split
from icalib.encoders.off_the_shelf import read_stock_model
from icalib.regimes.regime import Member, Outcome, Stages
from icalib.regimes.untrained import AbstractUntrained
from icalib.scoring.external import ExternalScoreJob


@final
class External(AbstractUntrained):
    """Scores with a stock cross-encoder or bi-encoder."""

    class Config(AbstractUntrained.Config):
        """Settings of a stock reranker."""

        model: str
        """Folder or hub name of a model that sentence-transformers saved: a cross-encoder with one label, or a
        bi-encoder."""

        @override
        def check(self) -> None:
            read_stock_model(self.model)

    @override
    def run(self, stages: Stages) -> Outcome:
        return Outcome(())

    @override
    def score(self, stages: Stages, members: Sequence[Member], split: Split) -> list[Stage]:
        job = ExternalScoreJob(data=stages.data, split=split, selection=stages.selection, model=self.config.model)
        return [stages.map(StageName("scores", str(split)), job)]
