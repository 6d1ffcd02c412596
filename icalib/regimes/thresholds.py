"""Absolute thresholds of a round, from quantiles of its scores or from precisions on validation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from icalib.regimes.pseudo_labels import NO_CALIBRATION, PseudoLabelRule, choose_pools
from icalib.scoring.gain import ChosenScores, Floats, Shard, resolve_gain_rule, subsampled

SELECT_NONE = 1.0
"""A threshold of p̄ that no candidate exceeds."""

_MIN_POOLS = 10  # the precision of fewer says little

Bools = npt.NDArray[np.bool_]


def resolve_rule(
    rule: PseudoLabelRule, shards: Iterable[Shard], validation: Iterable[Shard] | None = None
) -> PseudoLabelRule:
    """Replace every threshold by its absolute value.

    Args:
        validation: the same teacher's scores of the validation pools, which precisions are of.
    """
    if rule.scale == "absolute":
        return rule
    views = resolve_gain_rule(rule, shards)
    chosen = [choose_pools(*shard, views) for shard in subsampled(shards)]
    information = np.concatenate([scores.information for scores in chosen])
    confidence = (
        float(np.quantile(information, rule.confidence_threshold))
        if rule.confidence_threshold < NO_CALIBRATION
        else NO_CALIBRATION
    )
    if rule.scale == "quantile":
        found = _quantiles(rule, chosen)
    else:
        assert validation is not None
        found = _precise(rule, [choose_pools(*shard, views) for shard in validation])
    return views.model_copy(update={"confidence_threshold": confidence, **found})


def _quantiles(rule: PseudoLabelRule, chosen: Sequence[ChosenScores]) -> dict[str, float]:
    """A pool's best p̄ is above most p̄, so the order λ⁻ ≤ λ̃⁻ ≤ λ̃⁺ ≤ λ⁺ of the quantiles is that of the values."""
    probs = np.concatenate([scores.prob for scores in chosen])
    best = np.concatenate([_two_best(scores)[0] for scores in chosen])
    return {
        "positive_threshold": float(np.quantile(best, rule.positive_threshold)),
        "calibrated_positive_threshold": float(np.quantile(best, rule.calibrated_positive_threshold)),
        "negative_threshold": float(np.quantile(probs, rule.negative_threshold)),
        "calibrated_negative_threshold": float(np.quantile(probs, rule.calibrated_negative_threshold)),
    }


def _precise(rule: PseudoLabelRule, chosen: Sequence[ChosenScores]) -> dict[str, float]:
    """Return the thresholds that select most of the validation pools at the rule's precisions.

    Those of calibrated pools are of the pools that the others leave.
    """
    best, second, is_right = (np.concatenate(part) for part in zip(*map(_two_best, chosen), strict=True))
    sizes = np.concatenate([_sizes(scores) for scores in chosen])
    probs, gold = (np.concatenate([getattr(scores, name) for scores in chosen]) for name in ("prob", "gold"))
    known = np.repeat(is_right >= 0, sizes)
    positive = positive_at(best, second, is_right, rule.positive_threshold)
    left = best <= positive
    calibrated = positive_at(best[left], second[left], is_right[left], rule.calibrated_positive_threshold)
    of_left = known & np.repeat(left, sizes)
    negative = negative_at(probs[known], gold[known] == 0, rule.negative_threshold)
    calibrated_negative = negative_at(probs[of_left], gold[of_left] == 0, rule.calibrated_negative_threshold)
    return {
        "positive_threshold": positive,
        "calibrated_positive_threshold": min(calibrated, positive),
        "negative_threshold": min(negative, positive),
        "calibrated_negative_threshold": min(calibrated_negative, calibrated, positive),
    }


def positive_at(best: Floats, second: Floats, is_right: npt.NDArray[np.int64], precision: float) -> float:
    """Return the threshold that selects most pools with at least this fraction of right positives.

    Args:
        best, second: the two highest p̄ of each pool; a threshold selects those with just one above it.
        is_right: whether the best candidate is right; −1 where that is unknown.

    Returns:
        `SELECT_NONE` if no threshold selects ten pools with this precision.
    """
    known = is_right >= 0
    best, second, right = best[known], second[known], is_right[known] == 1
    thresholds = np.unique(np.concatenate([best, second]))
    selected = _above(best, thresholds) - _above(second, thresholds)
    rightly = _above(best[right], thresholds) - _above(second[right], thresholds)
    selected = np.where((rightly >= precision * selected) & (selected >= _MIN_POOLS), selected, 0)
    return float(thresholds[selected.argmax()]) if selected.any() else SELECT_NONE


def negative_at(probs: Floats, is_wrong: Bools, precision: float) -> float:
    """Return the largest p̄ such that at least this fraction of candidates up to it are wrong, 0 if there is none."""
    order = np.argsort(probs, kind="stable")
    ordered = probs[order]
    is_last = np.append(ordered[1:] > ordered[:-1], True)[: len(ordered)]  # of equal ones
    fraction = np.cumsum(is_wrong[order]) / np.arange(1, len(order) + 1)
    found = np.flatnonzero(is_last & (fraction >= precision))
    return float(ordered[found[-1]]) if len(found) else 0.0


def _above(values: Floats, thresholds: Floats) -> npt.NDArray[np.int64]:
    return len(values) - np.searchsorted(np.sort(values), thresholds, side="right")


def _sizes(chosen: ChosenScores) -> npt.NDArray[np.int64]:
    return np.unique(chosen.row, return_counts=True)[1]


def _two_best(chosen: ChosenScores) -> tuple[Floats, Floats, npt.NDArray[np.int64]]:
    """Return each pool's two highest p̄, and whether the highest is of the right candidate (−1 if unknown)."""
    order = np.lexsort((-chosen.prob, chosen.row))
    starts = np.concatenate([[0], np.cumsum(_sizes(chosen))[:-1]])
    prob, sizes = chosen.prob[order], _sizes(chosen)
    second = np.where(sizes > 1, prob[np.minimum(starts + 1, len(prob) - 1)], 0.0)
    return prob[starts], second, chosen.gold[order][starts]
