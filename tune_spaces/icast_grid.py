"""All of ICAST's thresholds together, as a product grid: many points, and --dry tells in seconds what each selects."""

from typing import Any

from icalib.sweeps.space import product

METHOD = "icast"
METRICS = {"F1": "maximize"}

VALUES = {
    "regime.rule.scale": ["absolute"],  # presets have precisions, whose order is another one
    "regime.rule.gain_threshold": [-1.0, 0.0, 0.02],  # λ; −1: intents always
    "regime.rule.positive_threshold": [0.6, 0.7, 0.8, 0.9],  # λ⁺
    "regime.rule.negative_threshold": [0.1, 0.2, 0.3],  # λ⁻
    "regime.rule.calibrated_positive_threshold": [0.4, 0.5, 0.6],  # λ̃⁺
    "regime.rule.calibrated_negative_threshold": [0.3, 0.4, 0.5],  # λ̃⁻
    "regime.rule.confidence_threshold": [0.1, 0.2, 0.4],  # λʰ, below ln 2
}


def suggest(trial: Any) -> dict[str, Any]:
    """One point of the grid."""
    return {name: trial.suggest_categorical(name, values) for name, values in VALUES.items()}


def grid() -> list[dict[str, Any]]:
    """Every point; those that break λ⁻ < λ̃⁻ ≤ λ̃⁺ < λ⁺ are left out by the sweep."""
    return product(VALUES)
