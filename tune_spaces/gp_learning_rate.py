"""Learning rates of encoder and Gaussian-process head, which need not be alike.

PG-DRR's paper has 1e-5 and 3e-3 (Ye et al. 2023). GPF-BERT's has one rate for both, 5e-6: see `gpf_bert`.
"""

from typing import Any

from icalib.sweeps.space import product

METHOD = "pg-drr"
METRICS = {"NLL": "minimize"}

VALUES = {
    "regime.training.learning_rate": [2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4],
    "regime.training.head_learning_rate": [3e-4, 1e-3, 3e-3, 1e-2],
}


def suggest(trial: Any) -> dict[str, Any]:
    """Encoder × head."""
    return {name: trial.suggest_categorical(name, values) for name, values in VALUES.items()}


def grid() -> list[dict[str, Any]]:
    """Every pair of rates."""
    return product(VALUES)
