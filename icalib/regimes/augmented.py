"""Supervised training on the labelled pools and on texts that were generated for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from pydantic import SerializeAsAny
from typing_extensions import override

from icalib.core.combination import PAIR_LOGITS, POOL_TEXTS, Capabilities
from icalib.core.stage_cache import StageName
from icalib.generation.generator import AbstractGenerator
from icalib.generation.retrieval import Retrieval
from icalib.regimes.regime import AbstractRegime, AnswerTraining, Augmentation, Member, Outcome, Stages
from icalib.training.contrast import AbstractContrast, GreyHinge
from icalib.training.settings import TrainingSettings


@final
class Augmented(AbstractRegime):
    """Generates texts for the labelled pools, then trains with a loss that contrasts pairs with these texts."""

    class Config(AbstractRegime.Config):
        """Settings of augmented training."""

        training: TrainingSettings = TrainingSettings()
        """Optimiser and schedule of the ranker."""
        generator: SerializeAsAny[AbstractGenerator.Config] = Retrieval.Config()
        """Generator of texts: retrieval, or a language model by its hub name (facebook/bart-base) or path."""
        contrast: SerializeAsAny[AbstractContrast.Config] = GreyHinge.Config()
        """Which texts are generated, and their loss term: grey-hinge (GRAY) or pseudo-positives (BIG)."""

        @override
        def provides(self) -> Capabilities:
            return super().provides() - {POOL_TEXTS}

        @override
        def requires(self) -> Capabilities:
            return super().requires() | {PAIR_LOGITS}

        @override
        def trainings(self) -> Sequence[TrainingSettings]:
            return [self.training]

        def check(self) -> None:
            """Check that the generator can be loaded."""
            if self.contrast.weight:
                self.generator.check()

    def run(self, stages: Stages) -> Outcome:
        """Generate texts, then train; with weight 0 no texts are generated, and training is supervised."""
        contrast, augmentation = self.config.contrast, None
        if contrast.weight:
            texts = stages.generate(contrast.wanted, contrast.num_answers, self.config.generator)
            augmentation = Augmentation(texts, contrast)
        model = stages.train(StageName("teacher"), AnswerTraining(self.config.training, augmentation=augmentation))
        return Outcome((Member(model, stages.estimator),))
