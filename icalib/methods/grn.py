"""GRN: an utterance dependency graph beside the token sequence, softmax over the pool (Liu et al. 2021)."""

from icalib.encoders.graph import GraphEncoder
from icalib.losses.listwise import PoolCrossEntropy
from icalib.methods import papers
from icalib.methods.method import Method
from icalib.regimes.supervised import Supervised
from icalib.training.domain_pretraining.utterance_order import UtteranceOrder
from icalib.training.settings import TrainingSettings

presets = {
    "paper-icast": papers.GRN,
    "light": {
        "domain_pretraining.max_windows": 3000,
        "domain_pretraining.training.epochs": 1,
        "domain_pretraining.training.learning_rate": 5e-5,
        "domain_pretraining.training.head_learning_rate": 1e-3,
        "regime.training.learning_rate": 5e-5,
        "regime.training.head_learning_rate": 1e-3,
    },
}


def method() -> Method:
    """Three epochs at 2e-5; pools of one right and three wrong candidates, four of them an update (our reading)."""
    training = TrainingSettings(epochs=3, learning_rate=2e-5, batch_size=4, train_negatives=3)
    return Method(
        similarity=None,
        intent=None,
        encoder=GraphEncoder.Config(),
        loss=PoolCrossEntropy.Config(),
        domain_pretraining=UtteranceOrder.Config(),
        regime=Supervised.Config(training=training),
        decision="argmax",
    )
