"""PG-DRR: kernel, length-scale, output scale, Gibbs chains and steps, support size (Ye et al. 2023)."""

from typing import Any

METHOD = "pg-drr"
METRICS = {"NLL": "minimize"}


def suggest(trial: Any) -> dict[str, Any]:
    """The inner product's length-scale would only be another output scale, so it isn't asked for."""
    settings = {
        "head.kernel": trial.suggest_categorical("head.kernel", ["rbf", "matern", "linear"]),
        "head.output_scale": trial.suggest_float("head.output_scale", 0.5, 32.0, log=True),
        "head.num_chains": trial.suggest_categorical("head.num_chains", [10, 20, 30, 50]),
        "head.num_steps": trial.suggest_int("head.num_steps", 2, 20),
        "head.support.size": trial.suggest_categorical("head.support.size", [64, 128, 256, 512]),
    }
    if settings["head.kernel"] != "linear":
        settings["head.length_scale"] = trial.suggest_float("head.length_scale", 0.1, 10.0, log=True)
    return settings
