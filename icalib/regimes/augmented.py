"""Supervised training on the labelled pools and on texts that were made up for them."""

from __future__ import annotations

from typing import ClassVar, final

from pydantic import SerializeAsAny

from icalib.core.stage_cache import StageName
from icalib.generation.generator import AbstractGenerator
from icalib.generation.retrieval import Retrieval
from icalib.regimes.regime import (
    AbstractRegime,
    AnswerTraining,
    Augmentation,
    Member,
    MethodParts,
    Stages,
    Trained,
    checkpoint,
)
from icalib.training.contrast import AbstractContrast, GreyHinge
from icalib.training.settings import TrainingSettings


@final
class Augmented(AbstractRegime):
    """A generator makes up texts for the labelled pools, then one training run contrasts pairs with them."""

    class Config(AbstractRegime.Config):
        """Settings of augmented training."""

        compares_logits: ClassVar[bool] = True

        training: TrainingSettings = TrainingSettings()
        """Optimiser and schedule of the ranker."""
        generator: SerializeAsAny[AbstractGenerator.Config] = Retrieval.Config()
        """Who makes up texts: retrieval, or a language model by its hub name (facebook/bart-base) or path."""
        contrast: SerializeAsAny[AbstractContrast.Config] = GreyHinge.Config()
        """What is made up, and what it adds to the loss: grey-hinge (GRAY) or pseudo-positives (BIG)."""

        def train_negatives(self) -> int | None:
            """As in `training`."""
            return self.training.train_negatives

        def num_epochs(self) -> int:
            """Those of one training."""
            return self.training.epochs

        def check(self) -> None:
            """A generator that can't be loaded is refused."""
            if self.contrast.weight:
                self.generator.check()

    def __init__(self, config: Config) -> None:
        self.config = config

    def run(self, stages: Stages, parts: MethodParts) -> Trained:
        """Generate texts, then train; without weight nothing is generated, and it is supervised training."""
        augmentation = self._augmentation(stages) if self.config.contrast.weight else None
        training = AnswerTraining(
            parts.ranker, parts.loss, self.config.training, parts.start, augmentation=augmentation
        )
        model = stages.train(StageName("teacher"), training)
        return Trained((Member(checkpoint(model), parts.estimator),))

    def _augmentation(self, stages: Stages) -> Augmentation:
        contrast = self.config.contrast
        texts = stages.generate(contrast.wanted, contrast.num_answers, self.config.generator)
        return Augmentation(texts, contrast)
