"""Supervised training on the labelled pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, final

from typing_extensions import override

from icalib.core.stage_cache import StageName
from icalib.regimes.regime import AbstractRegime, AnswerTraining, Member, MethodParts, Outcome, Stages
from icalib.scoring.gain import GainRule
from icalib.training.settings import TrainingSettings


@final
class Supervised(AbstractRegime):
    """Trains one model; with `with_intents`, it is ICAST's teacher."""

    class Config(AbstractRegime.Config):
        """Settings of supervised training."""

        learns_whole_pools: ClassVar[bool] = True

        training: TrainingSettings = TrainingSettings()
        """Optimiser and schedule."""
        with_intents: bool = False
        """Also train on the intent view and on the intents, and choose the view at test by `rule`."""
        rule: GainRule = GainRule()
        """Rule that chooses the view at test; only used with intents."""

        @override
        def needs_intents(self) -> bool:
            return self.with_intents

        def view_rule(self) -> GainRule | None:
            """Return the gain rule, or None without intents."""
            return self.rule if self.with_intents else None

        @override
        def train_negatives(self) -> int | None:
            return self.training.train_negatives

        @override
        def trainings(self) -> Sequence[TrainingSettings]:
            return [self.training]

    def __init__(self, config: Config) -> None:
        self.config = config

    @override
    def run(self, stages: Stages, parts: MethodParts) -> Outcome:
        training = AnswerTraining(
            parts.ranker,
            parts.loss,
            self.config.training,
            parts.estimator,
            parts.start,
            rule=self.config.view_rule(),
            with_intents=self.config.with_intents,
        )
        model = stages.train(StageName("teacher"), training)
        return Outcome((Member(model, parts.estimator),))
