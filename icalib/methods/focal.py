"""BERT with focal loss (Mukhoti et al. 2020)."""

from icalib.losses.focal import FocalLoss
from icalib.methods import papers
from icalib.methods.method import Method

presets = {"paper-gpf": papers.GPF | papers.FOCAL_LOSS}


def method() -> Method:
    """γ = 2."""
    return Method(loss=FocalLoss.Config())
