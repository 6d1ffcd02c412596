"""The backbone as an untrained bi-encoder: cosine of mean vectors. A row of every comparison."""

from icalib.methods.composition import Untrained


def method() -> Untrained:
    """Context and candidate are encoded apart."""
    return Untrained(scorer="bi-encoder")
