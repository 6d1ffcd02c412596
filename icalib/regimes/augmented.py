"""Supervised training on the labelled pools and on texts that were generated for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from pydantic import SerializeAsAny
from typing_extensions import override

from icalib.core.combination import PAIR_LOGITS, POOL_TEXTS, Capabilities
from icalib.core.job import Artifact
from icalib.core.stage_cache import StageName
from icalib.data.generated import GENERATED_TOKENS
from icalib.generation.generator import AbstractGenerator, Task
from icalib.generation.job import GenerateJob, TokenizeTextsJob
from icalib.generation.language_model import GeneratorJob, LanguageModel
from icalib.generation.retrieval import Retrieval
from icalib.regimes.regime import AbstractRegime, Member, Outcome
from icalib.stages.parts import Generated, PartTraining
from icalib.stages.stages import Stages, checkpoint
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
        return Outcome((Member(self.teacher(stages).train(), stages.estimator),))

    @override
    def teacher(self, stages: Stages) -> PartTraining:
        generated = Generated(self._texts(stages), self.config.contrast) if self.config.contrast.weight else None
        return PartTraining(stages, StageName("teacher"), self.config.training, generated=generated)

    def _texts(self, stages: Stages) -> Artifact:
        """Generate texts for the labelled pools, fine-tuning the models that the generator needs, and tokenise them."""
        contrast, generator, encoder = self.config.contrast, self.config.generator, stages.encoder
        selection = stages.selection.for_training()
        models: dict[Task, Artifact] = {}
        if isinstance(generator, LanguageModel.Config):
            for task in generator.fine_tuned_tasks(contrast.wanted):
                job = GeneratorJob(task=task, generator=generator, data=stages.data, selection=selection)
                models[task] = checkpoint(stages.run(StageName(f"{task}-generator"), job))
        job = GenerateJob(
            data=stages.data,
            selection=selection,
            wanted=contrast.wanted,
            num_answers=contrast.num_answers,
            generator=generator,
            models=models,
        )
        name = StageName(contrast.wanted.replace("_", "-"))
        texts = stages.run(name, job).artifact()
        job = TokenizeTextsJob(texts=texts, backbone=encoder.backbone, budget=encoder.budget)
        return stages.run(StageName("generated-tokens", name.label), job).artifact(GENERATED_TOKENS)
