"""BIG (Deng Y. et al. 2021): wrong pairs below pseudo-positives, retrieved or written by two language models."""

from icalib.methods import papers
from icalib.methods.method import Method
from icalib.regimes.augmented import Augmented
from icalib.training.contrast import PseudoPositives

presets = {"paper-icast": papers.BIG}


def method() -> Method:
    """`regime.contrast.weight` is η; 0 is `bert`."""
    return Method(regime=Augmented.Config(contrast=PseudoPositives.Config()), similarity=None, intent=None)
