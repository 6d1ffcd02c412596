"""Stock rerankers as rows of comparisons: what does training bring over a model that anyone can download?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, final

from typing_extensions import override

from icalib.calibration.calibrator import AbstractCalibrator, Platt
from icalib.core.stage_cache import Stage, StageName
from icalib.data.schema import Split
from icalib.encoders.off_the_shelf import read_stock_model
from icalib.regimes.regime import AbstractRegime, Member, MethodParts, Stages, Trained
from icalib.scoring.external import ExternalScoreJob


@final
class External(AbstractRegime):
    """Scores with a stock cross-encoder or bi-encoder, mapped to probabilities by Platt scaling on validation."""

    class Config(AbstractRegime.Config):
        """Settings of a stock reranker."""

        trains: ClassVar[bool] = False
        predicts_scores: ClassVar[bool] = True

        model: str
        """Folder or hub name of a model that sentence-transformers saved: a cross-encoder with one label, or a
        bi-encoder."""

        @property
        def own_calibrator(self) -> AbstractCalibrator.Config | None:
            """Platt scaling, since scores are not probabilities of these pools."""
            return Platt.Config()

        @override
        def train_negatives(self) -> int | None:
            return None

        @override
        def num_epochs(self) -> int:
            return 0

        @override
        def check(self) -> None:
            read_stock_model(self.model)

    def __init__(self, config: Config) -> None:
        self.config = config

    @override
    def run(self, stages: Stages, parts: MethodParts) -> Trained:
        return Trained(())

    @override
    def score(self, stages: Stages, members: Sequence[Member], split: Split) -> list[Stage]:
        job = ExternalScoreJob(data=stages.data, split=split, selection=stages.selection, model=self.config.model)
        return [stages.map(StageName("scores", str(split)), job)]
