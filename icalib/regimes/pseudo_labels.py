"""Pseudo labels of unlabelled pools (ICAST Eq. 5, 6, 8, 12-14)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field, model_validator

from icalib.core.run_tables import PSEUDO_LABEL_SCHEMA
from icalib.metrics.pairs import pool_softmax
from icalib.scoring.column import pool_sizes
from icalib.scoring.gain import ChosenScores, GainRule, choose_views

NO_CALIBRATION = 1.0
"""λʰ that disables answer-label calibration; mutual information is at most ln 2."""


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
        expected, is_met = "λ⁻ < λ̃⁻ ≤ λ̃⁺ < λ⁺ (ICAST §4.4)", negative < low <= high < positive
        if self.scale == "precision":  # labels of confident pools are right at least as often
            expected, is_met = "λ̃⁺ <= λ⁺ and λ̃⁻ <= λ⁻", high <= positive and low <= negative
        if not is_met:
            raise ValueError(
                f"found thresholds λ⁺ = {positive}, λ̃⁺ = {high}, λ⁻ = {negative} and λ̃⁻ = {low}; with "
                f"scale={self.scale}, expected {expected}. Change them to fit this order"
            )
        return self

    def of_views(self) -> GainRule:
        """Return what chooses the view, without the thresholds of pseudo labels."""
        return GainRule(**{name: getattr(self, name) for name in GainRule.model_fields})

    @classmethod
    def precisions(cls) -> Self:
        """Return precisions: 0.9 of positives and 0.99 of negatives are right, 0.8 and 0.98 in calibrated pools."""
        return cls(
            scale="precision",
            gain_threshold=0.5,
            positive_threshold=0.9,
            negative_threshold=0.99,
            calibrated_positive_threshold=0.8,
            calibrated_negative_threshold=0.98,
            confidence_threshold=0.95,
        )

    @classmethod
    def quantiles(cls) -> Self:
        """Return quantiles: the most confident tenth of pools, negatives below the median, the upper half of gains."""
        return cls(
            scale="quantile",
            gain_threshold=0.5,
            positive_threshold=0.9,
            negative_threshold=0.5,
            calibrated_positive_threshold=0.8,
            calibrated_negative_threshold=0.7,
            confidence_threshold=0.95,
        )


@dataclass(frozen=True)
class PseudoLabels:
    """Labels [N] of the kept pairs of some scores.

    `rule` is the reason why the pair's pool was selected, "" if it wasn't.
    """

    keep: npt.NDArray[np.bool_]
    label: npt.NDArray[np.int64]
    rule: npt.NDArray[np.str_]


def choose_pools(scores: pa.Table, intents: pa.Table | None, rule: PseudoLabelRule) -> ChosenScores:
    """Choose the view of each pair as `choose_views` does; `prob` is the p̄ that the rule compares with thresholds."""
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
    return PseudoLabels(keep=keep, label=label.astype(np.int64), rule=reason)


def pseudo_label_table(chosen: ChosenScores, labels: PseudoLabels) -> pa.Table:
    """Return the kept pairs (PSEUDO_LABEL_SCHEMA)."""
    keep = labels.keep
    columns = {
        "pool_id": chosen.pool_id[keep],
        "candidate": chosen.candidate[keep],
        "label": labels.label[keep],
        "gold": chosen.gold[keep],
        "view": np.where(chosen.with_intents[keep], "intent", "plain"),
        "rule": labels.rule[keep],
        "prob": chosen.prob[keep],
        "mutual_information": chosen.information[keep],
        "gain": chosen.gain[keep],
    }
    return pa.table(
        [pa.array(columns[field.name], field.type) for field in PSEUDO_LABEL_SCHEMA], schema=PSEUDO_LABEL_SCHEMA
    )
