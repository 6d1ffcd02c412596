"""The backbone as an untrained bi-encoder: cosine of mean vectors. A row of every comparison."""

from icalib.methods.method import Method
from icalib.regimes.untrained import Untrained


def method() -> Method:
    """Context and candidate are encoded apart."""
    return Method(regime=Untrained.Config(scorer="bi-encoder"), domain_pretraining=None, similarity=None, intent=None)
