"""Which models are pretrained."""

from __future__ import annotations

from icalib.core.component import Settings
from icalib.training.pretraining.intent_classifier import IntentLearning
from icalib.training.pretraining.word_vectors import WordVectors


class Pretraining(Settings):
    """Models that IART starts from, each a stage of the run that all seeds share."""

    word_vectors: WordVectors | None = WordVectors()
    """Word vectors learnt from the training pools' texts; null starts from random ones."""
    intent_classifier: IntentLearning | None = IntentLearning()
    """Classifier of intents learnt from the labelled pools' utterances; null weighs all turns the same."""
