"""ICAST: self-training with intent confidence gain and answer-label calibration (Deng et al. 2023)."""

from icalib.methods import papers
from icalib.methods.method import Method
from icalib.regimes.self_training import SelfTraining
from icalib.uncertainty.estimator import MCDropout

presets = {"paper-icast": papers.ICAST}


def method() -> Method:
    """Five dropout passes a view; thresholds as published."""
    return Method(uncertainty=MCDropout.Config(num_passes=5), regime=SelfTraining.Config())
