"""ICAST's thresholds by TPE, where every proposal obeys λ⁻ < λ̃⁻ ≤ λ̃⁺ < λ⁺.

λ̃± are drawn as fractions of the range between λ⁻ and λ⁺ within the paper's (0.1, 0.8), so no draw is wasted and each
range stays the same in all trials. λʰ stays below ln 2 = 0.693, the maximum of a candidate's mutual information.
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
    floor, ceiling = max(low, 0.1), min(high, 0.8)
    middle_low = floor + (ceiling - floor) * trial.suggest_float("calibrated_negative_share", 0.05, 0.95)
    middle_high = middle_low + (ceiling - middle_low) * trial.suggest_float("calibrated_positive_share", 0.0, 0.95)
    gain, use = trial.suggest_float("gain", 0.0, 0.049), trial.suggest_categorical("intents", ["always", "by gain"])
    return {
        "regime.rule.scale": "absolute",  # presets have precisions, whose order is another one
        "regime.rule.gain_threshold": -1.0 if use == "always" else round(gain, 4),
        "regime.rule.positive_threshold": round(high, 4),
        "regime.rule.negative_threshold": round(low, 4),
        "regime.rule.calibrated_positive_threshold": round(middle_high, 4),
        "regime.rule.calibrated_negative_threshold": round(middle_low, 4),
        "regime.rule.confidence_threshold": round(trial.suggest_float("confidence", 0.02, 0.6), 4),
    }
