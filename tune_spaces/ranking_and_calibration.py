"""Good rankings or probabilities that can be trusted? R@1 up and NLL down at once, over loss, negatives and dropout.

NLL judges probabilities because it is a proper score: ECE is 0 for a model that gives every candidate the base rate.
"""

from typing import Any

METHOD = "focal"
METRICS = {"R@1": "maximize", "NLL": "minimize"}
SAMPLER = "nsga2"


def suggest(trial: Any) -> dict[str, Any]:
    """What moves the one at the other's expense."""
    rate = "regime.training.learning_rate"
    return {
        "loss.gamma": trial.suggest_float("loss.gamma", 0.0, 4.0, step=0.5),
        rate: trial.suggest_float(rate, 1e-5, 2e-4, log=True),
        "regime.training.train_negatives": trial.suggest_categorical("regime.training.train_negatives", [1, 3, 9]),
        "encoder.dropout": trial.suggest_float("encoder.dropout", 0.0, 0.3, step=0.05),
    }
