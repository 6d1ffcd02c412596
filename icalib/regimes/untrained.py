"""Rankers that are not trained: the rows of every comparison that cost nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, final

from icalib.calibration.calibrator import AbstractCalibrator, Platt
from icalib.core.stage_cache import Stage, StageName
from icalib.data.schema import Split
from icalib.regimes.regime import AbstractRegime, Member, MethodParts, Stages, Trained
from icalib.scoring.untrained import Scorer, UntrainedScoreJob


@final
class Untrained(AbstractRegime):
    """Scores by BM25 or by a bi-encoder, made probabilities by Platt's map on validation."""

    class Config(AbstractRegime.Config):
        """Settings of an untrained ranker."""

        trains: ClassVar[bool] = False
        predicts_scores: ClassVar[bool] = True

        scorer: Scorer
        """bm25: Okapi BM25 of the candidate given the context, statistics from the candidates of the scored pools.
        bi-encoder: cosine of the mean token states of context and candidate, encoded apart."""

        @property
        def own_calibrator(self) -> AbstractCalibrator.Config:
            """Scores are no probabilities before a map is fitted."""
            return Platt.Config()

        def train_negatives(self) -> int | None:
            """Nothing is trained."""
            return None

        def num_epochs(self) -> int:
            """None."""
            return 0

    def __init__(self, config: Config) -> None:
        self.config = config

    def run(self, stages: Stages, parts: MethodParts) -> Trained:
        """Nothing to train."""
        return Trained(())

    def score(self, stages: Stages, members: Sequence[Member], split: Split) -> list[Stage]:
        """Scores of a split's pools."""
        job = UntrainedScoreJob(
            data=stages.data,
            split=split,
            selection=stages.selection,
            scorer=self.config.scorer,
            encoder=stages.encoder,
        )
        return [stages.map(StageName("scores", str(split)), job)]
