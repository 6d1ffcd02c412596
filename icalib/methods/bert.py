"""BERT cross-encoder on the labelled pools: one pass, binary cross-entropy."""

from icalib.methods.composition import Method


def method() -> Method:
    """The supervised baseline."""
    return Method()
