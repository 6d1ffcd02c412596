"""BERT with MC dropout: T = 10 passes at prediction (GPF-BERT, PG-DRR)."""

from icalib.methods.composition import Method
from icalib.uncertainty.estimator import MCDropout


def method() -> Method:
    """Trained as `bert`, whose training it shares."""
    return Method(uncertainty=MCDropout.Config(num_passes=10))
