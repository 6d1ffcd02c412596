"""ICAST's teacher alone: both views and intents, labelled pools only (ICAST Table 2, "Teacher")."""

from icalib.methods import papers
from icalib.methods.method import Method
from icalib.regimes.supervised import Supervised
from icalib.uncertainty.estimator import MCDropout

presets = {"paper-icast": papers.ICAST_TEACHER}


def method() -> Method:
    """The same gain rule chooses the view at test."""
    return Method(uncertainty=MCDropout.Config(num_passes=5), regime=Supervised.Config(with_intents=True))
