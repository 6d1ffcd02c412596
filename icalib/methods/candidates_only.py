"""Likeness to the other candidates without the context: what pools give away. A row of every comparison."""

from icalib.methods.method import Method
from icalib.regimes.untrained import Untrained


def method() -> Method:
    """Mean TF-IDF cosine of a candidate with the others."""
    return Method(
        regime=Untrained.Config(scorer="candidates-only"), domain_pretraining=None, similarity=None, intent=None
    )
