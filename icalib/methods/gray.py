"""GRAY (Lin et al. 2020): right above grey above random answers, grey ones retrieved or written by a language model."""

from icalib.calibration.calibrator import Platt
from icalib.methods import papers
from icalib.methods.method import Method
from icalib.regimes.augmented import Augmented
from icalib.training.contrast import GreyHinge
from icalib.training.settings import TrainingSettings

presets = {"paper-icast": papers.GRAY}


def method() -> Method:
    """One right, one random and two grey answers a context.

    A hinge is not a likelihood, so Platt's map on validation comes before the threshold (ours).
    `regime.contrast.weight=0` is `bert` with `calibration=platt` and `regime.training.train_negatives=1`.
    """
    return Method(
        regime=Augmented.Config(training=TrainingSettings(train_negatives=1), contrast=GreyHinge.Config()),
        calibration=Platt.Config(),
        similarity=None,
        intent=None,
    )
