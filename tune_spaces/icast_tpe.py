"""ICAST's thresholds by TPE, where every proposal obeys λ⁻ < λ̃⁻ ≤ λ̃⁺ < λ⁺.

λ̃± are drawn as shares of the room between λ⁻ and λ⁺, so no draw is wasted and each range stays the same in all trials.
"""

from typing import Any

METHOD = "icast"
METRICS = {"F1": "maximize"}
SAMPLER = "tpe"
PRUNER = "median"


def suggest(trial: Any) -> dict[str, Any]:
    """λ, λ⁺, λ⁻, λ̃⁺, λ̃⁻ and λʰ."""
    high = trial.suggest_float("positive", 0.3, 0.98)
    low = trial.suggest_float("negative", 0.02, 0.25)
    middle_low = low + (high - low) * trial.suggest_float("calibrated_negative_share", 0.05, 0.95)
    middle_high = middle_low + (high - middle_low) * trial.suggest_float("calibrated_positive_share", 0.0, 0.95)
    return {
        "regime.rule.gain_threshold": round(trial.suggest_float("gain", 0.0, 0.05), 4),
        "regime.rule.positive_threshold": round(high, 4),
        "regime.rule.negative_threshold": round(low, 4),
        "regime.rule.calibrated_positive_threshold": round(middle_high, 4),
        "regime.rule.calibrated_negative_threshold": round(middle_low, 4),
        "regime.rule.confidence_threshold": round(trial.suggest_float("confidence", 0.0, 0.6), 4),
    }
