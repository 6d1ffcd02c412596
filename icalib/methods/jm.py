"""JM: a context and all its candidates read in one sequence, softmax over the pool (Zhang et al. 2021)."""

from icalib.encoders.joint import JointEncoder
from icalib.losses.listwise import PoolCrossEntropy
from icalib.regimes.method import Method


def method() -> Method:
    """`bert` in all but what it reads and the loss; the candidates change places every epoch.

    The paper's training settings aren't known to us: these are the ones that ICAST gives for its re-implementations.
    """
    return Method(encoder=JointEncoder.Config(), loss=PoolCrossEntropy.Config(), decision="argmax")
