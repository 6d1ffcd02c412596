"""GPF-BERT: γ, spectral bound, ridge, features, and learning rates (Ye et al. 2023)."""

from typing import Any

METHOD = "gpf-bert"
METRICS = {"NLL": "minimize"}


def suggest(trial: Any) -> dict[str, Any]:
    """The paper has γ ≥ 1, without a value; 0 is cross-entropy (SNGP), the control. Its one rate is 5e-6."""
    return {
        "loss.gamma": trial.suggest_float("loss.gamma", 0.0, 5.0, step=1.0),
        "head.num_features": trial.suggest_categorical("head.num_features", [512, 1024, 2048]),
        "head.spectral_bound": trial.suggest_float("head.spectral_bound", 0.7, 1.3, step=0.05),
        "head.ridge": trial.suggest_float("head.ridge", 1e-4, 1e2, log=True),
        "head.dropout": trial.suggest_float("head.dropout", 0.0, 0.3, step=0.05),
        "regime.training.learning_rate": trial.suggest_float("regime.training.learning_rate", 1e-6, 1e-4, log=True),
        "regime.training.head_learning_rate": trial.suggest_float(
            "regime.training.head_learning_rate", 1e-6, 1e-2, log=True
        ),
    }
