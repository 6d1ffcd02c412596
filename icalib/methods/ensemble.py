"""Deep ensemble: five BERTs of different seeds, their probabilities averaged (PG-DRR).

GPF-BERT's two members, one BERT and its MC-dropout reading, are `regime.members=plain_and_estimated` with
`uncertainty=mc-dropout`.
"""

from icalib.methods.composition import Method
from icalib.regimes.ensemble import Ensemble


def method() -> Method:
    """The first member is `bert`, whose training it shares."""
    return Method(regime=Ensemble.Config())
