"""BM25 of the candidate given the context; no training. A row of every comparison."""

from icalib.methods.method import Method
from icalib.regimes.untrained import Untrained


def method() -> Method:
    """Okapi BM25 with the usual constants."""
    return Method(regime=Untrained.Config(scorer="bm25"), domain_pretraining=None, similarity=None, intent=None)
