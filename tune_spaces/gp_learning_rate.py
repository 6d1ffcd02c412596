"""Learning rates of encoder and Gaussian-process head, which need not be alike."""

from typing import Any

from icalib.sweeps.space import product

METHOD = "pg-drr"
METRICS = {"F1": "maximize"}

VALUES = {
    "regime.training.learning_rate": [1e-5, 2e-5, 5e-5, 1e-4],
    "regime.training.head_learning_rate": [3e-4, 1e-3, 3e-3, 1e-2],
}


def suggest(trial: Any) -> dict[str, Any]:
    """Encoder × head."""
    return {name: trial.suggest_categorical(name, values) for name, values in VALUES.items()}


def grid() -> list[dict[str, Any]]:
    """Every pair of rates."""
    return product(VALUES)
