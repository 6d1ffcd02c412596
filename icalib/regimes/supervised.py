"""Supervised training on the labelled pools."""

from __future__ import annotations

from typing import ClassVar, final

from icalib.core.stage_cache import StageName
from icalib.regimes.gain import GainRule
from icalib.regimes.regime import AbstractRegime, AnswerTraining, Member, MethodParts, Stages, Trained, checkpoint
from icalib.training.settings import TrainingSettings


@final
class Supervised(AbstractRegime):
    """One training run; with `with_intents` it is ICAST's teacher."""

    class Config(AbstractRegime.Config):
        """Settings of supervised training."""

        learns_whole_pools: ClassVar[bool] = True

        training: TrainingSettings = TrainingSettings()
        """Optimiser and schedule."""
        with_intents: bool = False
        """Learn the intent view and the intents themselves too, and choose the view at test by `rule`."""
        rule: GainRule = GainRule()
        """Which view to believe at test; only with intents."""

        def needs_intents(self) -> bool:
            """Only with intents."""
            return self.with_intents

        def view_rule(self) -> GainRule | None:
            """The gain rule, with intents."""
            return self.rule if self.with_intents else None

        def train_negatives(self) -> int | None:
            """As in `training`."""
            return self.training.train_negatives

        def num_epochs(self) -> int:
            """Those of one training."""
            return self.training.epochs

    def __init__(self, config: Config) -> None:
        self.config = config

    def run(self, stages: Stages, parts: MethodParts) -> Trained:
        """Train once."""
        training = AnswerTraining(
            parts.ranker, parts.loss, self.config.training, parts.start, with_intents=self.config.with_intents
        )
        model = stages.train(StageName("teacher"), training)
        return Trained((Member(checkpoint(model), parts.estimator),))
