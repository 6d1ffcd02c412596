"""The encoder's learning rate, and how long and with how many wrong candidates it is trained."""

from typing import Any

METHOD = "bert"
METRICS = {"F1": "maximize"}


def suggest(trial: Any) -> dict[str, Any]:
    """Rate on a log scale, warm-up, passes, negatives a positive."""
    rate = "regime.training.learning_rate"
    return {
        rate: trial.suggest_float(rate, 5e-6, 2e-4, log=True),
        "regime.training.warmup_fraction": trial.suggest_categorical("regime.training.warmup_fraction", [0.0, 0.1]),
        "regime.training.epochs": trial.suggest_int("regime.training.epochs", 2, 6),
        "regime.training.train_negatives": trial.suggest_categorical("regime.training.train_negatives", [1, 3, 9]),
    }
