"""Supervised training on the labelled pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from typing_extensions import override

from icalib.core.combination import WHOLE_POOLS, Capabilities
from icalib.core.stage_cache import StageName
from icalib.regimes.regime import AbstractRegime, Member, Outcome
from icalib.scoring.gain import GainRule
from icalib.stages.parts import PartTraining
from icalib.stages.stages import Stages
from icalib.training.settings import TrainingSettings


@final
class Supervised(AbstractRegime):
    """Trains one model; with `with_intents`, it is ICAST's teacher."""

    class Config(AbstractRegime.Config):
        """Settings of supervised training."""

        training: TrainingSettings = TrainingSettings()
        """Optimiser and schedule."""
        with_intents: bool = False
        """Also train on the intent view and on the intents, and choose the view at test by `rule`."""
        rule: GainRule = GainRule()
        """Rule that chooses the view at test; only used with intents."""

        @override
        def provides(self) -> Capabilities:
            return super().provides() | {WHOLE_POOLS}

        def view_rule(self) -> GainRule | None:
            """Return the gain rule, or None without intents."""
            return self.rule if self.with_intents else None

        @override
        def trainings(self) -> Sequence[TrainingSettings]:
            return [self.training]

    @override
    def run(self, stages: Stages) -> Outcome:
        return Outcome((Member(self.teacher(stages).train(), stages.estimator),))

    @override
    def teacher(self, stages: Stages) -> PartTraining:
        return PartTraining(stages, StageName("teacher"), self.config.training, self.config.view_rule())
