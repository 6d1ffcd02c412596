"""Agreement between annotators, corrected for what chance alone gives."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


def cohen_kappa(first_N: npt.NDArray[np.int64], second_N: npt.NDArray[np.int64]) -> float:
    """Return Cohen's κ of two annotators' categories of N units; NaN where both use one category only (Cohen 1960)."""
    observed = float((first_N == second_N).mean())
    by_chance = sum(float((first_N == k).mean() * (second_N == k).mean()) for k in np.union1d(first_N, second_N))
    return (observed - by_chance) / (1 - by_chance) if by_chance < 1 else float("nan")


def krippendorff_alpha(ratings_AN: FloatArray) -> float:
    """Return Krippendorff's α for nominal categories of N units by A annotators; NaN: not rated, or one category only.

    α = 1 − Dₒ/Dₑ from the coincidences o[k, l] = Σ_u (n_uk n_ul − [k = l] n_uk) / (m_u − 1) of units u that m_u ≥ 2
    annotators rated, n_uk of them as k (Krippendorff 2011, "Computing Krippendorff's alpha-reliability", C).
    """
    categories_K = np.unique(ratings_AN[~np.isnan(ratings_AN)])
    counts_NK = (ratings_AN[:, :, None] == categories_K).sum(0).astype(np.float64)
    counts_NK = counts_NK[counts_NK.sum(1) >= 2]
    weighted_NK = counts_NK / (counts_NK.sum(1, keepdims=True) - 1)
    coincidences_KK = weighted_NK.T @ counts_NK - np.diag(weighted_NK.sum(0))
    totals_K = coincidences_KK.sum(0)
    number = totals_K.sum()
    expected = (number**2 - (totals_K**2).sum()) / max(1.0, number - 1)
    return float(1 - (number - np.trace(coincidences_KK)) / expected) if expected else float("nan")
