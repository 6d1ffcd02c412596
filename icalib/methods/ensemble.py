"""Deep ensemble: five BERTs of different seeds, their probabilities averaged (PG-DRR).

GPF-BERT's two members, one BERT and its MC-dropout reading, are `regime.members=plain_and_estimated` with
`uncertainty=mc-dropout`.
"""

from icalib.methods import papers
from icalib.methods.method import Method
from icalib.methods.papers import Sourced
from icalib.regimes.ensemble import Ensemble

_PLAIN_AND_DROPOUT = {
    "regime.members": Sourced("plain_and_estimated", "§3.1"),
    "uncertainty": Sourced("mc-dropout", "§3.1"),
    **papers.passes_of_dropout("§3.1"),
}
_INDEPENDENT = {"regime.members": Sourced("independent", "§4.3"), "regime.num_members": Sourced(5, "§4.3")}

presets = {"paper-gpf": papers.GPF | _PLAIN_AND_DROPOUT, "paper-pg": papers.PG | _INDEPENDENT}


def method() -> Method:
    """Members are trained as `bert`."""
    return Method(regime=Ensemble.Config())
