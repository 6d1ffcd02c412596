"""IART: word-by-word matching at all depths of attention, turns weighted by intents (Yang et al. 2020)."""

from icalib.encoders.iart import IART
from icalib.losses.binary import BinaryCrossEntropy
from icalib.methods import papers
from icalib.methods.method import Method
from icalib.regimes.supervised import Supervised
from icalib.training.pretraining import Pretraining
from icalib.training.settings import TrainingSettings

presets = {
    "paper-icast": papers.IART,
    "light": {
        "encoder.max_words": 50,
        "encoder.budget.max_context_tokens": 305,
        "encoder.budget.max_candidate_tokens": 50,
    },
}


def method() -> Method:
    """As released: Adam, 1e-3 · 0.9^⌊updates / 400⌋, gradients within [−1, 1], losses below 10, five passes."""
    training = TrainingSettings(
        epochs=5,
        learning_rate=1e-3,
        weight_decay=0.0,
        warmup_fraction=0.0,
        schedule="staircase",
        max_grad_norm=None,
        max_grad_value=1.0,
        batch_size=32,
    )
    return Method(
        encoder=IART.Config(),
        loss=BinaryCrossEntropy.Config(max_loss=10.0),
        similarity=None,
        intent=None,
        regime=Supervised.Config(training=training),
        domain_pretraining=None,
        pretraining=Pretraining(),
    )
