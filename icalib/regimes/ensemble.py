"""Averaging the probabilities of several models."""

from __future__ import annotations

from collections.abc import Sequence
from multiprocessing.pool import ThreadPool
from typing import Literal, final

from pydantic import Field
from typing_extensions import override

from icalib.core.combination import UNCERTAINTY, WHOLE_POOLS, Capabilities
from icalib.core.seeding import child_seed
from icalib.core.stage_cache import StageName
from icalib.regimes.regime import AbstractRegime, Member, Outcome
from icalib.stages.parts import PartTraining
from icalib.stages.stages import Stages, Trained
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
        models = self._train(stages)
        if self.config.members == "plain_and_estimated":
            return Outcome((Member(models[0], Deterministic.Config()), Member(models[0], stages.estimator)))
        return Outcome(tuple(Member(model, stages.estimator) for model in models))

    @override
    def teacher(self, stages: Stages) -> PartTraining:
        return PartTraining(stages, StageName("teacher"), self.config.training)

    def _train(self, stages: Stages) -> list[Trained]:
        """Train the first member with all resources and the run's seed, as `bert` does, and the others in parallel."""
        training, others = self.config.training, range(1, self.config.num_trained)
        first = self.teacher(stages).train()
        if not others:
            return [first]
        executor, at_once = stages.executor.split(len(others))

        def member(index: int) -> tuple[int, Trained]:
            name, seed = StageName("teacher", f"member-{index}"), child_seed(stages.seed, "member", index)
            return index, PartTraining(stages, name, training, member_seed=seed, member_executor=executor).train()

        with ThreadPool(at_once) as pool:  # unlike a ThreadPoolExecutor, it doesn't wait for the others after an error
            members = dict(pool.imap_unordered(member, others))
        return [first, *(members[index] for index in others)]
