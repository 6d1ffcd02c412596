"""ICAST's published protocol: one threshold at a time over its grid, the others fixed (Deng et al. 2023, §5.3).

The fixed values are the published ones, on the paper's scale, whatever preset is chosen: every trial sets the scale and
all six thresholds. To let the lines cross elsewhere, copy this file and change `FIXED`: λ = 0 makes it the paper's for
MANtIS with 5 and 10 % labels. Grid points that break λ⁻ < λ̃⁻ ≤ λ̃⁺ < λ⁺ with the fixed values are left out, and the
fixed point, where all lines cross, is tried once. Left out, too, are the paper's λʰ of 0.7, 0.8 and 0.9: a candidate's
mutual information is at most ln 2 = 0.693, so that no pool can be above them.
"""

from typing import Any

METHOD = "icast"
METRICS = {"F1": "maximize"}

FIXED: dict[str, Any] = {
    "regime.rule.scale": "absolute",  # presets have precisions, whose order is another one
    "regime.rule.gain_threshold": 0.02,  # λ
    "regime.rule.positive_threshold": 0.8,  # λ⁺
    "regime.rule.negative_threshold": 0.1,  # λ⁻
    "regime.rule.calibrated_positive_threshold": 0.5,  # λ̃⁺
    "regime.rule.calibrated_negative_threshold": 0.5,  # λ̃⁻
    "regime.rule.confidence_threshold": 0.2,  # λʰ
}
TENTHS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]  # (0, 1) by 0.1
LINES = {
    "regime.rule.gain_threshold": [0.0, 0.01, 0.02, 0.03, 0.04],  # λ in [0, 0.05)
    "regime.rule.positive_threshold": TENTHS,  # λ⁺
    "regime.rule.negative_threshold": TENTHS,  # λ⁻
    "regime.rule.calibrated_positive_threshold": TENTHS[1:7],  # λ̃⁺ in (0.1, 0.8)
    "regime.rule.calibrated_negative_threshold": TENTHS[1:7],  # λ̃⁻ in (0.1, 0.8)
    "regime.rule.confidence_threshold": TENTHS[:6],  # λʰ, below ln 2
}


def suggest(trial: Any) -> dict[str, Any]:
    """All thresholds: one of them by its line, the others fixed."""
    threshold = trial.suggest_categorical("threshold", list(LINES))
    return {**FIXED, threshold: trial.suggest_categorical(threshold, LINES[threshold])}


def grid() -> list[dict[str, Any]]:
    """Line after line."""
    return [{"threshold": threshold, threshold: value} for threshold, values in LINES.items() for value in values]
