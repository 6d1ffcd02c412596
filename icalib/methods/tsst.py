"""TSST: teacher-student self-training without intents, ICAST's −IG."""

from icalib.methods import papers
from icalib.methods.method import Method
from icalib.regimes.self_training import SelfTraining

presets = {"paper-icast": papers.TSST}


def method() -> Method:
    """One deterministic pass over the plain view labels the pools (Eq. 5 and 6)."""
    changes = {"with_intents": False, "rule": {"confidence_threshold": 1.0}}
    return Method(regime=SelfTraining.Config.model_validate(changes))
