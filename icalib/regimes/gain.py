"""Intent confidence gain: which view of a pair to believe (ICAST §4.3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field, model_validator

from icalib.core.component import Settings

Floats = npt.NDArray[np.float64]


R = TypeVar("R", bound="GainRule")


ALWAYS_INTENTS = -1.0  # a gain lies in [−ln 2, ln 2]


NEVER_INTENTS = 1.0


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
    gains = np.concatenate([choose_views(*shard, _absolute(rule)).gain for shard in thinned(shards)])
    found = gains[~np.isnan(gains)]
    # Without a second view there is no gain, and λ plays no part.
    threshold = float(np.quantile(found, rule.gain_threshold)) if len(found) else NEVER_INTENTS
    return rule.model_copy(update={"scale": "absolute", "gain_threshold": threshold})


def _absolute(rule: GainRule) -> GainRule:
    return rule.model_copy(update={"scale": "absolute"})


def thinned(shards: Iterable[Shard]) -> list[Shard]:
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
