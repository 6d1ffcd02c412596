"""Models that initialise IART, trained on the pools' texts."""

from typing_extensions import override

from icalib.core.combination import OWN_WORD_VECTORS, Capabilities, Combinable
from icalib.core.component import Settings
from icalib.training.pretraining.intent_classifier import IntentLearning
from icalib.training.pretraining.word_vectors import WordVectors


class Pretraining(Settings, Combinable):
    """Models that initialise IART. Each is a stage of the run, reused by the runs of all seeds."""

    word_vectors: WordVectors | None = WordVectors()
    """Word vectors trained on the texts of the training pools; null starts from random vectors."""
    intent_classifier: IntentLearning | None = IntentLearning()
    """Intent classifier trained on the utterances of the labelled pools; null weights all turns equally."""

    @override
    def requires(self) -> Capabilities:
        return {OWN_WORD_VECTORS}
