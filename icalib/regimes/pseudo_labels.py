"""Intent confidence gain and pseudo labels (ICAST Eq. 5, 6, 8, 12-14)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field, model_validator

from icalib.core.component import Settings
from icalib.core.run_folder import PSEUDO_LABEL_SCHEMA, RoundSummary

Floats = npt.NDArray[np.float64]

R = TypeVar("R", bound="GainRule")

ALWAYS_INTENTS = -1.0  # a gain lies in [−ln 2, ln 2]
NEVER_INTENTS = 1.0
_NO_CALIBRATION = 1.0  # λʰ; mutual information is at most ln 2


class GainRule(Settings):
    """Which view of a pair to believe."""

    scale: Literal["absolute", "quantile"] = "absolute"
    """How thresholds are meant. `absolute`: as printed in the paper, for MC dropout. `quantile`: as shares between 0
    and 1 of what was scored in the round, since other estimators' figures have another scale: λ of the gains, λʰ of
    the mutual information, λ⁺ and λ̃⁺ of each pool's best p̄, λ⁻ and λ̃⁻ of all p̄. (At test λ is the quantile of
    validation.) The defaults below are absolute: set them all with it."""
    gain_threshold: float = Field(default=0.02, ge=-1, le=1)
    """λ: use the predicted intents iff Δ > λ. −1 uses them always, 1 never (gains lie between −0.69 and 0.69)."""
    confidence: Literal["information", "certainty"] = "information"
    """What counts as confidence g. `information`: mutual information, more is better, as paper and code have it.
    `certainty`: the opposite sign (Δ' = g − g̃, and g < λʰ), the sounder reading of the word."""
    intent_probability: Literal["none", "mean"] = "none"
    """p^e of Eq. 11 and 13. `none`: 1, as in the code. `mean`: p̄ and g of the intent view are multiplied by the mean
    probability of the chosen intents, as the paper prints it."""

    @model_validator(mode="after")
    def _are_shares(self) -> Self:
        if self.scale == "quantile" and self.gain_threshold < 0:
            raise ValueError(
                f"with scale=quantile `gain_threshold` is a share between 0 and 1; found {self.gain_threshold}. "
                "Give a share, or set `scale` to absolute (where -1 uses the intents always)"
            )
        return self


class PseudoLabelRule(GainRule):
    """Which unlabelled pools and pairs to learn from, and with which labels."""

    positive_threshold: float = Field(default=0.8, gt=0, lt=1)
    """λ⁺: a pool is confident if exactly one candidate's p̄ is above this (Eq. 5)."""
    negative_threshold: float = Field(default=0.1, gt=0, lt=1)
    """λ⁻: in a confident pool, candidates below this are negatives; those between are left out (Eq. 6)."""
    calibrated_positive_threshold: float = Field(default=0.5, gt=0, lt=1)
    """λ̃⁺: answer-label calibration takes a pool without a confident candidate if exactly one p̄ is above this."""
    calibrated_negative_threshold: float = Field(default=0.5, gt=0, lt=1)
    """λ̃⁻: in such a pool, candidates at or below this are negatives (Eq. 14)."""
    confidence_threshold: float = Field(default=0.2, ge=0, le=1)
    """λʰ: and exactly one candidate's g is above this (Eq. 12). 1 switches answer-label calibration off."""
    same_candidate: bool = False
    """Ask that the candidate with p̄ > λ̃⁺ is the one with g > λʰ; the code doesn't."""
    calibrate_confident_pools: bool = False
    """Label the candidates between λ⁻ and λ⁺ of confident pools by λ̃± too, as Eq. 14 reads; the code leaves them
    out."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        low, high = self.calibrated_negative_threshold, self.calibrated_positive_threshold
        if not self.negative_threshold < low <= high < self.positive_threshold:
            raise ValueError(
                "the thresholds must obey negative_threshold < calibrated_negative_threshold <= "
                "calibrated_positive_threshold < positive_threshold (λ⁻ < λ̃⁻ ≤ λ̃⁺ < λ⁺, ICAST §4.4); found "
                f"{self.negative_threshold} < {low} <= {high} < {self.positive_threshold}"
            )
        return self

    @classmethod
    def quantiles(cls) -> Self:
        """Thresholds as shares: the surest tenth of the pools, negatives below the median, the larger half of gains."""
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
class ChosenScores:
    """Each pair's scores in the view that the gain rule chose; all arrays have shape [N].

    `gain` is Δ, NaN where there is one view only.
    """

    pool_id: npt.NDArray[Any]
    row: npt.NDArray[np.int64]
    candidate: npt.NDArray[np.int64]
    gold: npt.NDArray[np.int64]
    with_intents: npt.NDArray[np.bool_]
    prob: Floats
    prob_var: Floats
    logit: Floats
    logit_var: Floats
    information: Floats
    gain: Floats
    num_passes: npt.NDArray[np.int64]


Shard = tuple[pa.Table, pa.Table | None]
"""Scores of some pools, and the intents that they were scored with."""

_MOST_SHARDS = 500  # quantiles come from so many shards at most, so that memory doesn't grow with the pool


def resolve_gain_rule(rule: R, shards: Iterable[Shard]) -> R:
    """The rule with λ as a number: where it is a quantile, that of these scores' gains."""
    if rule.scale == "absolute":
        return rule
    gains = np.concatenate([choose_views(*shard, _absolute(rule)).gain for shard in _thinned(shards)])
    found = gains[~np.isnan(gains)]
    # Without a second view there is no gain, and λ plays no part.
    threshold = float(np.quantile(found, rule.gain_threshold)) if len(found) else NEVER_INTENTS
    return rule.model_copy(update={"scale": "absolute", "gain_threshold": threshold})


def resolve_rule(rule: PseudoLabelRule, shards: Iterable[Shard]) -> PseudoLabelRule:
    """The rule with every threshold as a number: where they are quantiles, those of these scores.

    A pool's best p̄ is above most p̄, so the order λ⁻ ≤ λ̃⁻ ≤ λ̃⁺ ≤ λ⁺ of the shares is that of the numbers.
    """
    if rule.scale == "absolute":
        return rule
    views = resolve_gain_rule(rule, shards)
    chosen = [choose_views(*shard, views) for shard in _thinned(shards)]
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


def _absolute(rule: GainRule) -> GainRule:
    return rule.model_copy(update={"scale": "absolute"})


def _thinned(shards: Iterable[Shard]) -> list[Shard]:
    """Shards evenly spread, fewer than a fixed number, without holding more."""
    kept: list[Shard] = []
    step = 1
    for number, shard in enumerate(shards):
        if number % step:
            continue
        kept.append(shard)
        if len(kept) == _MOST_SHARDS:
            kept, step = kept[::2], step * 2
    return kept


def _best_of_pools(chosen: ChosenScores) -> Floats:
    _, pool = np.unique(chosen.row, return_inverse=True)
    best = np.full(pool.max() + 1, -np.inf)
    np.maximum.at(best, pool, chosen.prob)
    return best


def choose_views(scores: pa.Table, intents: pa.Table | None, rule: GainRule) -> ChosenScores:
    """Believe the intent view of a pair iff it raises confidence by more than λ (ICAST §4.3, Alg. 1 line 7).

    Args:
        scores: SCORE_SCHEMA of whole pools.
        intents: SHARD_INTENT_SCHEMA of the same pools; None where the plain view alone was scored.
    """
    views = np.asarray(scores["view"].to_pylist(), dtype=object)
    plain = scores.filter(pa.array(views == "plain"))
    columns = {name: plain[name].to_numpy() for name in plain.column_names if name != "view"}
    num_pairs = plain.num_rows
    gain = np.full(num_pairs, np.nan)
    with_intents = np.zeros(num_pairs, bool)
    if intents is not None:
        tilde = scores.filter(pa.array(views == "intent"))
        factor = _intent_factor(intents, rule, columns["row"])
        intent_columns = {name: tilde[name].to_numpy() for name in tilde.column_names if name != "view"}
        intent_columns["prob_mean"] = intent_columns["prob_mean"] * factor
        intent_columns["mutual_information"] = intent_columns["mutual_information"] * factor
        gain = intent_columns["mutual_information"] - columns["mutual_information"]  # Δ = g̃ − g
        if rule.confidence == "certainty":
            gain = -gain
        with_intents = gain > rule.gain_threshold
        columns = {name: np.where(with_intents, intent_columns[name], columns[name]) for name in columns}
    return ChosenScores(
        pool_id=columns["pool_id"],
        row=columns["row"].astype(np.int64),
        candidate=columns["candidate"].astype(np.int64),
        gold=columns["label"].astype(np.int64),
        with_intents=with_intents,
        prob=columns["prob_mean"].astype(np.float64),
        prob_var=columns["prob_var"].astype(np.float64),
        logit=columns["logit_mean"].astype(np.float64),
        logit_var=columns["logit_var"].astype(np.float64),
        information=columns["mutual_information"].astype(np.float64),
        gain=gain,
        num_passes=columns["num_passes"].astype(np.int64),
    )


def _intent_factor(intents: pa.Table, rule: GainRule, rows: npt.NDArray[np.int64]) -> Floats:
    if rule.intent_probability == "none":
        return np.ones(len(rows))
    order = intents["row"].to_numpy()
    places = np.argsort(order, kind="stable")
    return intents["prob"].to_numpy()[places][np.searchsorted(order[places], rows)]


@dataclass(frozen=True)
class PseudoLabels:
    """Labels [N] of the kept pairs of some scores; `rule` names why each pool was kept, "" where it wasn't."""

    keep: npt.NDArray[np.bool_]
    label: npt.NDArray[np.int64]
    rule: npt.NDArray[np.str_]


def assign(chosen: ChosenScores, rule: PseudoLabelRule) -> PseudoLabels:
    """Pseudo labels of whole pools: confident pools by Eq. 5 and 6, calibrated ones by Eq. 12 and 14."""
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
    labelled_midway = likely_pair | (chosen.prob <= rule.calibrated_negative_threshold)
    keep_confident = confident_pair | negative | (labelled_midway if rule.calibrate_confident_pools else False)
    keep = (confident & keep_confident) | (calibrated & labelled_midway)
    label = np.where(confident & ~np.bool_(rule.calibrate_confident_pools), confident_pair, likely_pair)
    why = np.where(confident, "confident", np.where(calibrated, "calibrated", ""))
    return PseudoLabels(keep=keep, label=label.astype(np.int64), rule=why)


def _confident(information: Floats, rule: PseudoLabelRule) -> npt.NDArray[np.bool_]:
    if rule.confidence == "certainty":
        return information < rule.confidence_threshold
    return information > rule.confidence_threshold


def pseudo_label_table(chosen: ChosenScores, labels: PseudoLabels) -> pa.Table:
    """PSEUDO_LABEL_SCHEMA of the kept pairs."""
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


# Most gains lie within ±0.03 nats, and none beyond ±ln 2: bins are nearly even up to 0.01 and then widen in proportion.
GAIN_EDGES = 0.01 * np.sinh(np.linspace(-1, 1, 81) * np.arcsinh(70))


class RoundTally:
    """Adds up what a round did, shard by shard."""

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
        best = _top_share(chosen)
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
        """The round's summary."""
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


def _top_share(chosen: ChosenScores) -> Floats:
    """For each pool with gold: 1 if its best candidate is right, shared among ties."""
    known = chosen.gold >= 0
    _, pool = np.unique(chosen.row[known], return_inverse=True)
    prob, gold = chosen.prob[known], chosen.gold[known]
    best = np.full(pool.max() + 1, -np.inf)
    np.maximum.at(best, pool, prob)
    at_best = prob == best[pool]
    return np.bincount(pool, weights=at_best & (gold == 1)) / np.bincount(pool, weights=at_best)
