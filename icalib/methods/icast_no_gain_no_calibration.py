"""ICAST without gain and answer-label calibration (−ICGE−ALC): intents always, Eq. 5 and 6 only."""

from icalib.core.component import with_setting
from icalib.methods import icast_no_gain, papers
from icalib.methods.method import Method

_ONE_PASS = "intents always, Eq. 5 and 6 only; one pass with dropout instead of five"

presets = {
    "paper-icast": icast_no_gain.presets["paper-icast"]
    | {"regime.rule.confidence_threshold": papers.code(1.0, _ONE_PASS)}
}


def method() -> Method:
    """λʰ = 1 is above every mutual information. The authors' branch uses one dropout pass; here it is the mean of T."""
    return with_setting(icast_no_gain.method(), "regime.rule.confidence_threshold", 1.0)
