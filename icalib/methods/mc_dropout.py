"""BERT with MC dropout: T = 10 passes at prediction (GPF-BERT, PG-DRR)."""

from icalib.methods import papers
from icalib.methods.method import Method
from icalib.uncertainty.estimator import MCDropout

presets = {
    "paper-gpf": papers.GPF | papers.passes_of_dropout("§3.1"),
    "paper-pg": papers.PG | papers.passes_of_dropout("§4.3"),
}


def method() -> Method:
    """Trained as `bert`, but never left at its start, which has no dropout."""
    return Method(uncertainty=MCDropout.Config(num_passes=10))
