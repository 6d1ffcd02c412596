"""SAM, re-implemented by description: similarity and semantic features over BERT's states (Zhang et al. 2022)."""

from icalib.encoders.sam import SAM
from icalib.methods import papers
from icalib.methods.method import Method
from icalib.regimes.supervised import Supervised
from icalib.training.settings import TrainingSettings

presets = {"paper-icast": papers.SAM}


def method() -> Method:
    """The backbone learns at 2e-5, the matching network at 1e-3 (our reading)."""
    training = TrainingSettings(learning_rate=2e-5, head_learning_rate=1e-3)
    return Method(encoder=SAM.Config(), similarity=None, intent=None, regime=Supervised.Config(training=training))
