"""BIG (Deng Y. et al. 2021): wrong pairs below pseudo-positives, retrieved or written by two language models."""

from icalib.regimes.augmented import Augmented
from icalib.regimes.augmented_answers import PseudoPositives
from icalib.regimes.method import Method


def method() -> Method:
    """`regime.contrast.weight` is η; 0 is `bert`."""
    return Method(regime=Augmented.Config(contrast=PseudoPositives.Config()))
