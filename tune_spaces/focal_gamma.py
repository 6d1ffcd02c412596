"""How much should focal loss hold back easy pairs? γ from 0 (cross-entropy) to 5 (Mukhoti et al. 2020).

0 is the control; GPF-BERT's paper has γ ≥ 1.
"""

from typing import Any

from icalib.sweeps.space import product

METHOD = "focal"
METRICS = {"NLL": "minimize"}

VALUES = {"loss.gamma": [0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0]}


def suggest(trial: Any) -> dict[str, Any]:
    """γ."""
    return {"loss.gamma": trial.suggest_categorical("loss.gamma", VALUES["loss.gamma"])}


def grid() -> list[dict[str, Any]]:
    """Each γ once."""
    return product(VALUES)
