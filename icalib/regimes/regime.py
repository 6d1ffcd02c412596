"""Regimes: how labelled and unlabelled pools become one trained ranker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from icalib.core.component import Component, ComponentConfig
from icalib.core.stage_cache import Stage
from icalib.data.schema import Split
from icalib.losses.binary import AbstractLoss
from icalib.models.config import RankerConfig
from icalib.regimes.gain import GainRule
from icalib.regimes.workbench import Workbench
from icalib.scoring.job import Shards
from icalib.uncertainty.estimator import AbstractEstimator


@dataclass(frozen=True)
class Parts:
    """What a method hands to its regime."""

    ranker: RankerConfig
    loss: AbstractLoss.Config
    estimator: AbstractEstimator.Config
    start: Stage | None


@dataclass(frozen=True)
class Member:
    """A trained stage whose predictions count, and the estimator that they come from."""

    model: Stage
    estimator: AbstractEstimator.Config


@dataclass(frozen=True)
class Trained:
    """A regime's outcome.

    `members` are averaged with equal weights (most regimes have one); they come from round `chosen_round` of
    `num_rounds` (round 0 is the teacher).
    """

    members: tuple[Member, ...]
    chosen_round: int = 0
    num_rounds: int = 0


class AbstractRegime(Component):
    """Trains a ranker by asking a workbench."""

    class Config(ComponentConfig):
        """Base of regimes' settings."""

        learns_whole_pools: ClassVar[bool] = False
        """Whether losses over whole pools can go with it."""

        compares_logits: ClassVar[bool] = False
        """Whether it compares logits of pairs, which a head with an objective of its own never shows."""

        @property
        def reads_twice(self) -> bool:
            """Whether a model's deterministic reading and the estimator's are both members."""
            return False

        def needs_intents(self) -> bool:
            """Whether the data must have intent labels."""
            return False

        def view_rule(self) -> GainRule | None:
            """How a view is chosen at test; None where the plain view is the only one."""
            return None

        def train_negatives(self) -> int | None:
            """Wrong candidates for each right one in training; None where all of a pool are taken."""
            raise NotImplementedError

        def num_epochs(self) -> int:
            """Epochs of a whole run, at most: all its trainings together."""
            raise NotImplementedError

        def check(self) -> None:
            """Refuse what can't work before anything is computed."""

    def run(self, bench: Workbench, parts: Parts) -> Trained:
        """Train, and say which model to evaluate."""
        raise NotImplementedError


def score_members(bench: Workbench, members: Sequence[Member], split: Split, *, with_intents: bool) -> list[Shards]:
    """Scores of a split's pools by each member."""
    return [
        bench.score(
            scores_name(split, place),
            member.model,
            split=split,
            part="all",
            estimator=member.estimator,
            with_intents=with_intents,
        )
        for place, member in enumerate(members)
    ]


def scores_name(split: Split, place: int) -> str:
    """The stage of a member's scores."""
    return f"{split}/scores-{place}" if place else f"{split}/scores"
