"""How much label smoothing does idea 7 need?"""

from typing import Any

from icalib.sweeps.space import product

METHOD = "my_lab.methods.idea7"
METRICS = {"NLL": "minimize"}

VALUES = {"loss.epsilon": [0.0, 0.05, 0.1, 0.2], "head.hidden_size": [16, 64]}


def suggest(trial: Any) -> dict[str, Any]:
    """ε, and the hidden layer's width."""
    return {name: trial.suggest_categorical(name, values) for name, values in VALUES.items()}


def grid() -> list[dict[str, Any]]:
    """Every pair of values."""
    return product(VALUES)
