"""Averaging the probabilities of several models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, final

from pydantic import Field
from typing_extensions import override

from icalib.core.combination import UNCERTAINTY, WHOLE_POOLS, Capabilities
from icalib.core.stage_cache import StageName
from icalib.regimes.regime import AbstractRegime, AnswerTraining, Member, Outcome, Stages
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import Deterministic


@final
class Ensemble(AbstractRegime):
    """Models with different seeds (deep ensemble), or one model with two estimators (GPF-BERT's two members)."""

    class Config(AbstractRegime.Config):
        """Settings of an ensemble."""

        training: TrainingSettings = TrainingSettings()
        """Optimiser and schedule of every member."""
        members: Literal["independent", "plain_and_estimated"] = "independent"
        """`independent`: models trained with different seeds, in parallel (PG-DRR's five BERTs). `plain_and_estimated`:
        one model with two estimators, deterministic and `uncertainty`; with MC dropout, this is GPF-BERT's ensemble."""
        num_members: int = Field(default=5, ge=1)
        """M, the number of independent members."""

        @override
        def provides(self) -> Capabilities:
            return super().provides() | {WHOLE_POOLS}

        @override
        def requires(self) -> Capabilities:
            return super().requires() | ({UNCERTAINTY} if self.members == "plain_and_estimated" else frozenset())

        @override
        def trainings(self) -> Sequence[TrainingSettings]:
            return [self.training]

        @override
        def num_epochs(self) -> int:
            return self.num_trained * self.training.epochs

        @property
        def num_trained(self) -> int:
            """Number of models that are trained."""
            return self.num_members if self.members == "independent" else 1

    @override
    def run(self, stages: Stages) -> Outcome:
        names = [StageName("teacher", f"member-{index}" if index else "") for index in range(self.config.num_trained)]
        models = stages.train_members(names, AnswerTraining(self.config.training))
        if self.config.members == "plain_and_estimated":
            return Outcome((Member(models[0], Deterministic.Config()), Member(models[0], stages.estimator)))
        return Outcome(tuple(Member(model, stages.estimator) for model in models))
