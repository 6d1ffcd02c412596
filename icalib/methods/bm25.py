"""BM25 of the candidate given the context; no training. A row of every comparison."""

from icalib.methods.composition import Untrained


def method() -> Untrained:
    """Okapi BM25 with the usual constants."""
    return Untrained(scorer="bm25")
