"""JM: a context and all its candidates read in one sequence, softmax over the pool (Zhang et al. 2021)."""

from icalib.encoders.joint import JointEncoder
from icalib.losses.listwise import PoolCrossEntropy
from icalib.methods import papers
from icalib.methods.method import Method
from icalib.regimes.supervised import Supervised
from icalib.training.settings import TrainingSettings

presets = {"paper-icast": papers.JM}


def method() -> Method:
    """`bert` in all but what it reads and the loss; the candidates change places every epoch.

    The paper's training settings aren't known to us: learning rate and epochs are those that ICAST gives for its
    re-implementations, four pools an update (of as many candidates as pools have) are our choice.
    """
    return Method(
        encoder=JointEncoder.Config(),
        similarity=None,
        intent=None,
        loss=PoolCrossEntropy.Config(),
        regime=Supervised.Config(training=TrainingSettings(batch_size=4)),
        decision="argmax",
    )
