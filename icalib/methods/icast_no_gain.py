"""ICAST without intent confidence gain (−ICGE): the intent view always."""

from icalib.core.component import with_setting
from icalib.methods import icast, papers
from icalib.methods.method import Method
from icalib.scoring.gain import ALWAYS_INTENTS

presets = {
    "paper-icast": papers.ICAST
    | {"regime.rule.gain_threshold": papers.ours(ALWAYS_INTENTS, "no switch for it in the code")}
}


def method() -> Method:
    """λ = −1 lets every gain through, at test too."""
    return with_setting(icast.method(), "regime.rule.gain_threshold", ALWAYS_INTENTS)
