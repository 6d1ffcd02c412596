"""GRAY (Lin et al. 2020): right above grey above random answers, grey ones retrieved or written by a language model."""

from icalib.methods import papers
from icalib.methods.method import Method
from icalib.regimes.augmented import Augmented
from icalib.training.contrast import GreyHinge
from icalib.training.settings import TrainingSettings

presets = {"paper-icast": papers.GRAY}


def method() -> Method:
    """One right, one random and two grey answers a context.

    `regime.contrast.weight=0` is the cross-encoder of `bert` with `regime.training.train_negatives=1`.
    """
    return Method(
        regime=Augmented.Config(training=TrainingSettings(train_negatives=1), contrast=GreyHinge.Config()),
        similarity=None,
        intent=None,
    )
