"""ICAST without gain and answer-label calibration (−ICGE−ALC): intents always, Eq. 5 and 6 only."""

from icalib.core.component import with_setting
from icalib.methods import icast_no_gain
from icalib.methods.composition import Method


def method() -> Method:
    """λʰ = 1 is above every mutual information. The authors' branch uses one dropout pass; here it is the mean of T."""
    return with_setting(icast_no_gain.method(), "regime.rule.confidence_threshold", 1.0)
