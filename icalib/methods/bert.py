"""A bi-encoder, then a BERT cross-encoder, on the labelled pools: one pass, binary cross-entropy."""

from icalib.methods import papers
from icalib.methods.method import Method

presets = {"paper-icast": papers.ICAST_BASELINE, "paper-gpf": papers.GPF, "paper-pg": papers.PG}


def method() -> Method:
    """The supervised baseline."""
    return Method()
