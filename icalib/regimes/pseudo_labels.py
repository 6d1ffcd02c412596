"""Pseudo labels of unlabelled pools (ICAST Eq. 5, 6, 8, 12-14)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field, model_validator

from icalib.core.run_folder import PSEUDO_LABEL_SCHEMA, RoundSummary
from icalib.regimes.gain import ChosenScores, Floats, GainRule, Shard, choose_views, resolve_gain_rule, subsampled

_NO_CALIBRATION = 1.0  # λʰ; mutual information is at most ln 2


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

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        low, high = self.calibrated_negative_threshold, self.calibrated_positive_threshold
        if not self.negative_threshold < low <= high < self.positive_threshold:
            raise ValueError(
                f"found thresholds {self.negative_threshold}, {low}, {high} and {self.positive_threshold}; expected "
                "negative_threshold < calibrated_negative_threshold <= calibrated_positive_threshold < "
                "positive_threshold (λ⁻ < λ̃⁻ ≤ λ̃⁺ < λ⁺, ICAST §4.4). Change them to fit this order"
            )
        return self

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


def resolve_rule(rule: PseudoLabelRule, shards: Iterable[Shard]) -> PseudoLabelRule:
    """Replace every threshold by its absolute value: quantiles by those of these scores.

    A pool's best p̄ is above most p̄, so the order λ⁻ ≤ λ̃⁻ ≤ λ̃⁺ ≤ λ⁺ of the quantiles is that of the values.
    """
    if rule.scale == "absolute":
        return rule
    views = resolve_gain_rule(rule, shards)
    chosen = [choose_views(*shard, views) for shard in subsampled(shards)]
    probs = np.concatenate([scores.prob for scores in chosen])
    best = np.concatenate([_best_of_pools(scores) for scores in chosen])
    information = np.concatenate([scores.information for scores in chosen])
    quantiles = {
        "positive_threshold": np.quantile(best, rule.positive_threshold),
        "calibrated_positive_threshold": np.quantile(best, rule.calibrated_positive_threshold),
        "negative_threshold": np.quantile(probs, rule.negative_threshold),
        "calibrated_negative_threshold": np.quantile(probs, rule.calibrated_negative_threshold),
        "confidence_threshold": np.quantile(information, rule.confidence_threshold)
        if rule.confidence_threshold < _NO_CALIBRATION
        else _NO_CALIBRATION,
    }
    return views.model_copy(update={name: float(value) for name, value in quantiles.items()})


def _best_of_pools(chosen: ChosenScores) -> Floats:
    _, pool = np.unique(chosen.row, return_inverse=True)
    best = np.full(pool.max() + 1, -np.inf)
    np.maximum.at(best, pool, chosen.prob)
    return best


@dataclass(frozen=True)
class PseudoLabels:
    """Labels [N] of the kept pairs of some scores.

    `rule` is the reason why the pair's pool was selected, "" if it wasn't.
    """

    keep: npt.NDArray[np.bool_]
    label: npt.NDArray[np.int64]
    rule: npt.NDArray[np.str_]


def assign(chosen: ChosenScores, rule: PseudoLabelRule) -> PseudoLabels:
    """Assign pseudo labels to whole pools: confident pools by Eq. 5 and 6, calibrated ones by Eq. 12 and 14."""
    _, pool = np.unique(chosen.row, return_inverse=True)
    confident_pair = chosen.prob > rule.positive_threshold
    likely_pair = chosen.prob > rule.calibrated_positive_threshold
    high_pair = _confident(chosen.information, rule)

    def count(pairs: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        return np.bincount(pool, weights=pairs).astype(np.int64)[pool]

    confident = count(confident_pair) == 1  # Eq. 5
    calibrated = (count(confident_pair) == 0) & (count(likely_pair) == 1)  # Eq. 12, as a condition on the pool
    if rule.confidence == "certainty" or rule.same_candidate:
        calibrated &= count(likely_pair & high_pair) == 1
    if rule.confidence == "information":
        calibrated &= count(high_pair) == 1
    if rule.confidence_threshold >= _NO_CALIBRATION:
        calibrated &= False

    negative = chosen.prob < rule.negative_threshold
    labelled_pair = likely_pair | (chosen.prob <= rule.calibrated_negative_threshold)
    keep_confident = confident_pair | negative | (labelled_pair if rule.calibrate_confident_pools else False)
    keep = (confident & keep_confident) | (calibrated & labelled_pair)
    label = np.where(confident & ~np.bool_(rule.calibrate_confident_pools), confident_pair, likely_pair)
    reason = np.where(confident, "confident", np.where(calibrated, "calibrated", ""))
    return PseudoLabels(keep=keep, label=label.astype(np.int64), rule=reason)


def _confident(information: Floats, rule: PseudoLabelRule) -> npt.NDArray[np.bool_]:
    if rule.confidence == "certainty":
        return information < rule.confidence_threshold
    return information > rule.confidence_threshold


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


# Most gains are within ±0.03 nats, and none beyond ±ln 2: bins are nearly even up to 0.01 and then grow exponentially.
GAIN_EDGES = 0.01 * np.sinh(np.linspace(-1, 1, 81) * np.arcsinh(70))


class RoundTally:
    """Accumulates the statistics of a round, shard by shard."""

    def __init__(self) -> None:
        self._pools = self._selected = self._pairs = self._with_intents = 0
        self._rules: dict[str, int] = {"confident": 0, "calibrated": 0}
        self._confusion: dict[str, int] = {}
        self._top = self._gold_pools = self._right_pools = self._gold_selected = 0.0
        self._histogram = np.zeros(len(GAIN_EDGES) - 1)

    def add(self, chosen: ChosenScores, labels: PseudoLabels) -> None:
        """Add a shard's pools."""
        self._pools += len(np.unique(chosen.row))
        kept_rows, first = np.unique(chosen.row[labels.keep], return_index=True)
        self._selected += len(kept_rows)
        self._pairs += int(labels.keep.sum())
        self._with_intents += int(chosen.with_intents[labels.keep].sum())
        for rule in self._rules:
            self._rules[rule] += int((labels.rule[labels.keep][first] == rule).sum())
        self._histogram += np.histogram(chosen.gain[~np.isnan(chosen.gain)], GAIN_EDGES)[0]
        self._add_gold(chosen, labels)

    def _add_gold(self, chosen: ChosenScores, labels: PseudoLabels) -> None:
        known = chosen.gold >= 0
        if not known.any():
            return
        best = _top_accuracy(chosen)
        self._top += float(best.sum())
        self._gold_pools += len(best)
        kept = labels.keep & known
        label, gold = labels.label[kept], chosen.gold[kept]
        for name, pairs in {
            "true_positive": (label == 1) & (gold == 1),
            "false_positive": (label == 1) & (gold == 0),
            "true_negative": (label == 0) & (gold == 0),
            "false_negative": (label == 0) & (gold == 1),
        }.items():
            self._confusion[name] = self._confusion.get(name, 0) + int(pairs.sum())
        self._gold_selected += len(np.unique(chosen.row[kept]))
        self._right_pools += float(((label == 1) & (gold == 1)).sum())

    def summary(self, number: int) -> RoundSummary:
        """Return the round's summary."""
        pairs = sum(self._confusion.values())
        right = self._confusion.get("true_positive", 0) + self._confusion.get("true_negative", 0)
        return RoundSummary(
            round=number,
            num_pools_scored=self._pools,
            num_pools_selected=self._selected,
            num_pairs_selected=self._pairs,
            num_pools_by_rule=self._rules,
            share_with_intents=self._with_intents / self._pairs if self._pairs else 0.0,
            pool_accuracy=self._right_pools / self._gold_selected if self._gold_selected else None,
            pair_accuracy=right / pairs if pairs else None,
            base_accuracy=self._top / self._gold_pools if self._gold_pools else None,
            confusion=self._confusion,
            gain_histogram_edges=GAIN_EDGES.tolist(),
            gain_histogram_counts=[int(count) for count in self._histogram],
        )


def _top_accuracy(chosen: ChosenScores) -> Floats:
    """Return, for each pool with a gold label, the fraction of its best (tied) candidates that are right."""
    known = chosen.gold >= 0
    _, pool = np.unique(chosen.row[known], return_inverse=True)
    prob, gold = chosen.prob[known], chosen.gold[known]
    best = np.full(pool.max() + 1, -np.inf)
    np.maximum.at(best, pool, prob)
    at_best = prob == best[pool]
    return np.bincount(pool, weights=at_best & (gold == 1)) / np.bincount(pool, weights=at_best)
