"""Base of regimes, which train a ranker on labelled and unlabelled pools and score pools with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from typing_extensions import override

from icalib.core.combination import BACKBONE, EPOCHS, PAIR_PROBS, POOL_TEXTS, TRAINING, UNCERTAINTY, Capabilities
from icalib.core.component import Component, ComponentConfig
from icalib.core.stage_cache import Stage
from icalib.data.schema import Split
from icalib.scoring.gain import GainRule
from icalib.stages.parts import PartTraining, score, scores_name
from icalib.stages.stages import Scoring, Stages, Trained
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import AbstractEstimator


@dataclass(frozen=True)
class Member:
    """A model and an estimator, whose predictions are averaged with those of other members."""

    model: Trained
    estimator: AbstractEstimator.Config


@dataclass(frozen=True)
class Outcome:
    """Result of a regime.

    The predictions of `members` are averaged with equal weights; most regimes have one member, untrained rankers none.
    The members are from round `chosen_round` of `num_rounds`, where round 0 is the teacher.
    """

    members: tuple[Member, ...]
    chosen_round: int = 0
    num_rounds: int = 0


class AbstractRegime(Component):
    """Trains a ranker by requesting stages, and scores pools with it."""

    class Config(ComponentConfig):
        """Base of regimes' settings."""

        trains: ClassVar[bool] = True
        """Whether the regime trains models, which can be loaded. Others have logits on an arbitrary scale."""

        @override
        def provides(self) -> Capabilities:
            if not self.trains:
                return frozenset()
            has_epochs = all(training.epochs for training in self.trainings())
            return {TRAINING, POOL_TEXTS, EPOCHS} if has_epochs else {TRAINING, POOL_TEXTS}

        @override
        def requires(self) -> Capabilities:
            return {BACKBONE, PAIR_PROBS, UNCERTAINTY} if self.needs_intents() else frozenset()

        @property
        def can_be_loaded(self) -> bool:
            """Whether a finished run has models that score any pool by itself."""
            return self.trains

        def needs_intents(self) -> bool:
            """Return whether the data must have intent labels."""
            return self.view_rule() is not None

        def view_rule(self) -> GainRule | None:
            """Return the rule that chooses a view at test; None if only the plain view is used."""
            return None

        def train_negatives(self) -> int | None:
            """Return the number of wrong candidates per right one in the last training; None if all are used."""
            trainings = self.trainings()
            return trainings[-1].train_negatives if trainings else None

        def trainings(self) -> Sequence[TrainingSettings]:
            """Return the settings of each kind of training on answers, in order; the second has pseudo labels."""
            raise NotImplementedError

        def num_epochs(self) -> int:
            """Return the maximum number of epochs of a run, summed over all its trainings on answers."""
            return sum(training.epochs for training in self.trainings())

        def check(self) -> None:
            """Raise a SettingError for settings that can't work, before anything is computed."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def run(self, stages: Stages) -> Outcome:
        """Train, and return the members to evaluate."""
        raise NotImplementedError

    def teacher(self, stages: Stages) -> PartTraining:
        """Return the training of the first model, on labelled pools alone, of a regime that trains."""
        raise NotImplementedError

    def score(self, stages: Stages, members: Sequence[Member], split: Split) -> list[Stage]:
        """Score a split's pools with each member."""
        rule = self.config.view_rule()
        intents = None if rule is None else rule.intents
        return [
            score(stages, scores_name(split, index), member.model, Scoring(split, "all", member.estimator, intents))
            for index, member in enumerate(members)
        ]
