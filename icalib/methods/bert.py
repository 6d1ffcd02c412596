"""BERT cross-encoder on the labelled pools: one pass, binary cross-entropy."""

from icalib.methods import papers
from icalib.methods.composition import Method

presets = {"paper-icast": papers.icast_baseline(), "paper-gpf": papers.gpf(), "paper-pg": papers.pg()}


def method() -> Method:
    """The supervised baseline."""
    return Method()
