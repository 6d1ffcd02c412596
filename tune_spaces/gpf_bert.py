"""GPF-BERT: γ, spectral bound, ridge, features, and learning rates (Ye et al. 2023)."""

from typing import Any

METHOD = "gpf-bert"
METRICS = {"F1": "maximize"}


def suggest(trial: Any) -> dict[str, Any]:
    """γ 0 is SNGP."""
    return {
        "loss.gamma": trial.suggest_float("loss.gamma", 0.0, 4.0, step=0.5),
        "head.num_features": trial.suggest_categorical("head.num_features", [512, 1024, 2048]),
        "head.spectral_bound": trial.suggest_float("head.spectral_bound", 0.7, 1.3, step=0.05),
        "head.ridge": trial.suggest_float("head.ridge", 1e-2, 1e2, log=True),
        "head.dropout": trial.suggest_float("head.dropout", 0.0, 0.3, step=0.05),
        "regime.training.learning_rate": trial.suggest_float("regime.training.learning_rate", 1e-5, 1e-4, log=True),
        "regime.training.head_learning_rate": trial.suggest_float(
            "regime.training.head_learning_rate", 1e-5, 1e-2, log=True
        ),
    }
