"""Regimes: how labelled and unlabelled pools become one trained ranker."""

from __future__ import annotations

from dataclasses import dataclass

from icalib.core.component import Component, ComponentConfig
from icalib.core.stages import Stage
from icalib.losses.binary import AbstractLoss
from icalib.regimes.pseudo_labels import GainRule
from icalib.regimes.ranker import RankerConfig
from icalib.regimes.workbench import Workbench
from icalib.uncertainty.estimator import AbstractEstimator


@dataclass(frozen=True)
class Parts:
    """What a method hands to its regime."""

    ranker: RankerConfig
    loss: AbstractLoss.Config
    estimator: AbstractEstimator.Config
    start: Stage | None


@dataclass(frozen=True)
class Trained:
    """A regime's outcome: the model, which round it comes from, and all models in order (round 0 is the teacher)."""

    model: Stage
    chosen_round: int
    models: tuple[Stage, ...]


class AbstractRegime(Component):
    """Trains a ranker by asking a workbench."""

    class Config(ComponentConfig):
        """Base of regimes' settings."""

        def needs_intents(self) -> bool:
            """Whether the data must have intent labels."""
            return False

        def view_rule(self) -> GainRule | None:
            """How a view is chosen at test; None where the plain view is the only one."""
            return None

    def run(self, bench: Workbench, parts: Parts) -> Trained:
        """Train, and say which model to evaluate."""
        raise NotImplementedError
