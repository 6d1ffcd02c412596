"""Pseudo labels of unlabelled pools (ICAST Eq. 5, 6, 12-14): the rule, what it assigns, and its thresholds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field, model_validator

from icalib.core.run_tables import PSEUDO_LABEL_SCHEMA
from icalib.metrics.pairs import pool_softmax
from icalib.scoring.column import pool_sizes
from icalib.scoring.gain import ChosenScores, Floats, GainRule, Shard, choose_views, resolve_gain_rule, subsampled

NO_CALIBRATION = 1.0
"""λʰ that disables answer-label calibration; mutual information is at most ln 2."""
SELECT_NONE = 1.0
"""A threshold of p̄ that no candidate exceeds."""

SYMBOLS = {
    "gain_threshold": "λ", "positive_threshold": "λ⁺", "negative_threshold": "λ⁻",
    "calibrated_positive_threshold": "λ̃⁺", "calibrated_negative_threshold": "λ̃⁻", "confidence_threshold": "λʰ",
}  # fmt: skip
"""What the paper calls each threshold."""

_MIN_POOLS = 10  # the precision of fewer says little

Bools = npt.NDArray[np.bool_]


class PseudoLabelRule(GainRule):
    """Rule that selects unlabelled pools and pairs for training, and assigns their labels."""

    positive_threshold: float = Field(default=0.8, gt=0, lt=1)
    """λ⁺: a pool is confident if exactly one candidate's p̄ is above this (Eq. 5)."""
    negative_threshold: float = Field(default=0.1, gt=0, lt=1)
    """λ⁻: in a confident pool, candidates below this are negatives; those in between are left out (Eq. 6)."""
    calibrated_positive_threshold: float = Field(default=0.5, gt=0, lt=1)
    """λ̃⁺: answer-label calibration selects a pool without a confident candidate if exactly one p̄ is above this."""
    calibrated_negative_threshold: float = Field(default=0.5, gt=0, lt=1)
    """λ̃⁻: in such a pool, candidates at or below this are negatives (Eq. 14)."""
    confidence_threshold: float = Field(default=0.2, ge=0, le=1)
    """λʰ: and if exactly one candidate's g is above this (Eq. 12). 1 disables answer-label calibration."""
    same_candidate: bool = False
    """Require that the candidate with p̄ > λ̃⁺ is the one with g > λʰ; the authors' code doesn't."""
    calibrate_confident_pools: bool = False
    """Also label candidates between λ⁻ and λ⁺ of confident pools by λ̃±, as in Eq. 14; the authors' code leaves them
    out."""

    over_pool: bool = False
    """p̄ is a softmax over the pool: how far the best candidate is ahead. False is the paper's p̄ of a single pair."""

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        positive, negative = self.positive_threshold, self.negative_threshold
        high, low = self.calibrated_positive_threshold, self.calibrated_negative_threshold
        expected, is_met = "λ⁻ < λ̃⁻ ≤ λ̃⁺ < λ⁺ (ICAST §4.3.2)", negative < low <= high < positive
        if self.scale == "precision":  # labels of confident pools are right at least as often
            expected, is_met = "λ̃⁺ <= λ⁺ and λ̃⁻ <= λ⁻", high <= positive and low <= negative
        if not is_met:
            raise ValueError(
                f"found thresholds λ⁺ = {positive}, λ̃⁺ = {high}, λ⁻ = {negative} and λ̃⁻ = {low}; with "
                f"scale={self.scale}, expected {expected}. Change them to fit this order"
            )
        return self

    @property
    def thresholds(self) -> dict[str, float]:
        """The thresholds, by name."""
        return {name: float(getattr(self, name)) for name in SYMBOLS}

    def resolved(self, thresholds: Mapping[str, float]) -> Self:
        """Return this rule with absolute thresholds; one that selects nothing could not be set."""
        return self.model_copy(update={"scale": "absolute", **thresholds})

    def of_views(self) -> GainRule:
        """Return what chooses the view, without the thresholds of pseudo labels."""
        return GainRule(**{name: getattr(self, name) for name in GainRule.model_fields})

    @classmethod
    def precisions(cls) -> Self:
        """Return precisions: 0.9 of positives and 0.99 of negatives are right, 0.8 and 0.98 in calibrated pools."""
        return cls(
            scale="precision",
            positive_threshold=0.9,
            negative_threshold=0.99,
            calibrated_positive_threshold=0.8,
            calibrated_negative_threshold=0.98,
            confidence_threshold=0.95,
        )

    @classmethod
    def quantiles(cls) -> Self:
        """Return quantiles: the most confident tenth of pools, negatives below the median."""
        return cls(
            scale="quantile",
            positive_threshold=0.9,
            negative_threshold=0.5,
            calibrated_positive_threshold=0.8,
            calibrated_negative_threshold=0.7,
            confidence_threshold=0.95,
        )


@dataclass(frozen=True)
class PseudoLabels:
    """Labels [N] of the kept pairs of some scores.

    `reason` is why the pair's pool was selected: confident, calibrated, or "" if it wasn't.
    """

    keep: npt.NDArray[np.bool_]
    label: npt.NDArray[np.int64]
    reason: npt.NDArray[np.str_]


def scores_for_rule(scores: pa.Table, intents: pa.Table | None, rule: PseudoLabelRule) -> ChosenScores:
    """Return the scores in the views that the gain chooses; `prob` is the p̄ that the rule compares with thresholds."""
    chosen = choose_views(scores, intents, rule)
    if not rule.over_pool:
        return chosen
    return replace(chosen, prob=pool_softmax(chosen.ranking, pool_sizes(chosen.row)))


def assign(chosen: ChosenScores, rule: PseudoLabelRule) -> PseudoLabels:
    """Assign pseudo labels to whole pools: confident pools by Eq. 5 and 6, calibrated ones by Eq. 12 and 14."""
    _, pool = np.unique(chosen.row, return_inverse=True)
    confident_pair = chosen.prob > rule.positive_threshold
    likely_pair = chosen.prob > rule.calibrated_positive_threshold
    high_pair = chosen.information > rule.confidence_threshold
    if rule.confidence == "certainty":
        high_pair = chosen.information < rule.confidence_threshold

    def count(pairs: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        return np.bincount(pool, weights=pairs).astype(np.int64)[pool]

    confident = count(confident_pair) == 1  # Eq. 5
    calibrated = (count(confident_pair) == 0) & (count(likely_pair) == 1)  # Eq. 12, as a condition on the pool
    if rule.confidence == "certainty" or rule.same_candidate:
        calibrated &= count(likely_pair & high_pair) == 1
    if rule.confidence == "information":
        calibrated &= count(high_pair) == 1
    if rule.confidence_threshold >= NO_CALIBRATION:
        calibrated &= False

    negative = chosen.prob < rule.negative_threshold
    labelled_pair = likely_pair | (chosen.prob <= rule.calibrated_negative_threshold)
    keep_confident = confident_pair | negative | (labelled_pair if rule.calibrate_confident_pools else False)
    keep = (confident & keep_confident) | (calibrated & labelled_pair)
    label = np.where(confident & ~np.bool_(rule.calibrate_confident_pools), confident_pair, likely_pair)
    reason = np.where(confident, "confident", np.where(calibrated, "calibrated", ""))
    return PseudoLabels(keep=keep, label=label.astype(np.int64), reason=reason)


def pseudo_label_table(chosen: ChosenScores, labels: PseudoLabels) -> pa.Table:
    """Return the kept pairs (PSEUDO_LABEL_SCHEMA)."""
    keep = labels.keep
    columns = {
        "pool_id": chosen.pool_id[keep],
        "candidate": chosen.candidate[keep],
        "label": labels.label[keep],
        "gold": chosen.gold[keep],
        "view": chosen.view[keep],
        "rule": labels.reason[keep],
        "prob": chosen.prob[keep],
        "mutual_information": chosen.information[keep],
        "gain": chosen.gain[keep],
    }
    return pa.table(columns, schema=PSEUDO_LABEL_SCHEMA)


def resolve_rule(
    rule: PseudoLabelRule, shards: Sequence[Shard], validation: Sequence[Shard] | None = None
) -> PseudoLabelRule:
    """Replace every threshold by its absolute value.

    Args:
        validation: the same teacher's scores of the validation pools, which precisions are of.
    """
    if rule.scale == "absolute":
        return rule
    partly = resolve_gain_rule(rule, shards)  # thresholds of p̄ are still quantiles or precisions
    chosen = [scores_for_rule(*shard, partly) for shard in subsampled(shards)]
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
        found = _precise(rule, [scores_for_rule(*shard, partly) for shard in validation])
    return partly.model_copy(update={"confidence_threshold": confidence, **found})


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
    sizes = np.concatenate([pool_sizes(scores.row) for scores in chosen])
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
        # candidates are negative below λ⁻; none is above λ⁺ as well, which is for those above it
        "negative_threshold": float(np.nextafter(min(negative, positive), 1.0)) if negative else 0.0,
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


def _two_best(chosen: ChosenScores) -> tuple[Floats, Floats, npt.NDArray[np.int64]]:
    """Return each pool's two highest p̄, and whether the highest is of the right candidate (−1 if unknown)."""
    order, sizes = np.lexsort((-chosen.prob, chosen.row)), pool_sizes(chosen.row)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    prob = chosen.prob[order]
    second = np.where(sizes > 1, prob[np.minimum(starts + 1, len(prob) - 1)], 0.0)
    return prob[starts], second, chosen.gold[order][starts]
