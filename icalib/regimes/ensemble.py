"""Averaging the probabilities of several models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, Self, final

from pydantic import Field, model_validator
from typing_extensions import override

from icalib.core.stage_cache import StageName
from icalib.regimes.regime import AbstractRegime, AnswerTraining, Member, MethodParts, Stages, Trained, checkpoint
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import Deterministic


@final
class Ensemble(AbstractRegime):
    """Models with different seeds (deep ensemble), or one model with two estimators (GPF-BERT's two members)."""

    class Config(AbstractRegime.Config):
        """Settings of an ensemble."""

        learns_whole_pools: ClassVar[bool] = True

        training: TrainingSettings = TrainingSettings()
        """Optimiser and schedule of every member. Independent members never keep their start, which they share."""
        members: Literal["independent", "plain_and_estimated"] = "independent"
        """`independent`: models trained with different seeds, in parallel (PG-DRR's five BERTs). `plain_and_estimated`:
        one model with two estimators, deterministic and `uncertainty`; with MC dropout, this is GPF-BERT's ensemble."""
        num_members: int = Field(default=5, ge=1)
        """M, the number of independent members."""

        @model_validator(mode="after")
        def _members_differ(self) -> Self:
            if self.num_trained > 1 and not self.training.epochs:
                raise ValueError(
                    f"found `epochs` 0 with {self.num_trained} members, which then all rank by the bi-encoder of the "
                    "start. Set `training.epochs` to 1 or more, or `num_members` to 1"
                )
            return self

        @property
        @override
        def reads_twice(self) -> bool:
            return self.members == "plain_and_estimated"

        @override
        def train_negatives(self) -> int | None:
            return self.training.train_negatives

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

    def __init__(self, config: Config) -> None:
        self.config = config

    @override
    def run(self, stages: Stages, parts: MethodParts) -> Trained:
        names = [StageName("teacher", f"member-{index}" if index else "") for index in range(self.config.num_trained)]
        settings = self.config.training
        if len(names) > 1:
            settings = settings.model_copy(update={"keep_start": False})  # members that keep it are all the same
        training = AnswerTraining(parts.ranker, parts.loss, settings, parts.estimator, parts.start)
        models = [checkpoint(stage) for stage in stages.train_members(names, training)]
        if self.config.members == "plain_and_estimated":
            return Trained((Member(models[0], Deterministic.Config()), Member(models[0], parts.estimator)))
        return Trained(tuple(Member(model, parts.estimator) for model in models))
