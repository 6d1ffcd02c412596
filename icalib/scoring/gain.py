"""Intent confidence gain: chooses between the plain and the intent view of a pair (ICAST §4.3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from icalib.calibration.fitted import pair_logit
from icalib.core.component import Settings
from icalib.metrics.pairs import PoolScores

Floats = npt.NDArray[np.float64]


R = TypeVar("R", bound="GainRule")


class IntentChoice(Settings):
    """How the intents of an utterance are chosen from their predicted probabilities."""

    choice: Literal["threshold", "argmax", "top_k"] = "threshold"
    """`threshold`: those above `threshold`, as in the authors' code; there may be none, and the cross-encoder reads
    both views of a pool without any alike. `argmax`: the most probable one. `top_k`: the `top_k` most probable ones."""
    threshold: float = Field(default=0.5, gt=0, lt=1)
    """Probability above which `threshold` chooses an intent."""
    top_k: int = Field(default=2, ge=1)
    """Number of intents that `top_k` chooses."""

    def chosen(self, probs_K: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Return the chosen intents in ascending order."""
        if self.choice == "threshold":
            return np.flatnonzero(probs_K > self.threshold)
        number = 1 if self.choice == "argmax" else self.top_k
        return np.sort(np.argsort(-probs_K, kind="stable")[:number])


AUTHORS_CHOICE = IntentChoice()
"""Intents above 0.5, as in the authors' code."""


ALWAYS_INTENTS = -1.0  # gains are in [−ln 2, ln 2]
NEVER_INTENTS = 1.0


class GainRule(Settings):
    """Rule that chooses the view of a pair."""

    intents: IntentChoice = IntentChoice()
    """Which predicted intents the intent view contains."""

    scale: Literal["absolute", "quantile", "precision"] = "absolute"
    """Scale of the thresholds. `absolute`: values, as in the paper, which uses MC dropout. `quantile`: quantiles
    between 0 and 1 of the round's scores, since the values of other estimators have another scale: λ of the gains, λʰ
    of the mutual information, λ⁺ and λ̃⁺ of each pool's best p̄, λ⁻ and λ̃⁻ of all p̄. (At test, λ is the quantile of
    validation.) `precision`: λ and λʰ are such quantiles, and the others fractions of right labels on the validation
    pools, as the round's teacher scores them: with λ⁺ = 0.9, at least 0.9 of the pools that its value selects there
    get the right positive; likewise λ⁻ for negatives. The defaults of the thresholds are absolute: with another scale,
    set all of them."""
    gain_threshold: float = Field(default=ALWAYS_INTENTS, ge=-1, le=1)
    """λ: use the predicted intents iff Δ > λ: 0.02 in the paper. −1, the default, uses them always, as a sum of parts
    ranks best so; 1 never (gains are between −0.69 and 0.69)."""
    confidence: Literal["information", "certainty"] = "information"
    """Definition of the confidence g. `information`: the mutual information, where more is better, as in the paper and
    its code. `certainty`: the opposite sign (Δ' = g − g̃, and g < λʰ), which is closer to the usual meaning of
    confidence."""

    @model_validator(mode="after")
    def _check_quantile(self) -> Self:
        if self.scale != "absolute" and ALWAYS_INTENTS < self.gain_threshold < 0:
            raise ValueError(
                f"`gain_threshold` is {self.gain_threshold}; with scale={self.scale}, expected a quantile between "
                "0 and 1. Give a quantile, -1 (which always uses the intents), or set `scale` to absolute"
            )
        return self


@dataclass(frozen=True)
class ChosenScores:
    """Scores of each pair in the view that the gain rule chose; all arrays have shape [N].

    `gain` is Δ, or NaN if only one view was scored. `has_intents` is whether any intent was predicted for the pool.
    The halves [N, 2] are g of the plain view and Δ from the even and from the odd passes, NaN without such halves.
    """

    pool_id: npt.NDArray[Any]
    row: npt.NDArray[np.int64]
    candidate: npt.NDArray[np.int64]
    gold: npt.NDArray[np.int64]
    reads_intents: npt.NDArray[np.bool_]
    prob: Floats
    prob_var: Floats
    logit: Floats
    logit_var: Floats
    information: Floats
    gain: Floats
    num_passes: npt.NDArray[np.int64]
    has_intents: npt.NDArray[np.bool_]
    information_halves: Floats
    gain_halves: Floats

    @property
    def view(self) -> npt.NDArray[np.str_]:
        """The chosen view."""
        return np.where(self.reads_intents, "intent", "plain")

    @property
    def ranking(self) -> Floats:
        """What ranks pairs: the logit of the mean probability where logits are uncertain, as in the papers.

        Candidates of a pool differ in variance, so mean logits can give another order.
        """
        return np.where(self.logit_var > 0, pair_logit(self.prob, self.logit), self.logit)


Shard = tuple[pa.Table, pa.Table | None]
"""Scores of some pools, and the predicted intents of the intent view."""


_MAX_SHARDS = 500  # quantiles are computed from at most this number of shards, which bounds memory


def resolve_gain_rule(rule: R, shards: Sequence[Shard]) -> R:
    """Replace λ by its absolute value: unless it is absolute, by that quantile of the scores' gains."""
    if rule.scale == "absolute" or rule.gain_threshold in (ALWAYS_INTENTS, NEVER_INTENTS):
        return _absolute(rule)
    gains = np.concatenate([choose_views(*shard, _absolute(rule)).gain for shard in subsampled(shards)])
    found = gains[~np.isnan(gains)]
    # Without a second view there are no gains, and λ has no effect.
    threshold = float(np.quantile(found, rule.gain_threshold)) if len(found) else NEVER_INTENTS
    return rule.model_copy(update={"scale": "absolute", "gain_threshold": threshold})


def _absolute(rule: R) -> R:
    return rule.model_copy(update={"scale": "absolute"})


def subsampled(shards: Sequence[Shard]) -> list[Shard]:
    """Return evenly spaced shards, fewer than a fixed number."""
    step = 1
    while len(range(0, len(shards), step)) >= _MAX_SHARDS:
        step *= 2
    return [shards[index] for index in range(0, len(shards), step)]


def choose_views(scores: pa.Table, intents: pa.Table | None, rule: GainRule) -> ChosenScores:
    """Choose the intent view of a pair iff it raises confidence by more than λ (ICAST §4.3, Alg. 1 line 7).

    Args:
        intents: SHARD_INTENT_SCHEMA of the same pools; None if only the plain view was scored.
    """
    plain = scores.filter(pc.field("view") == "plain")
    columns = {name: plain[name].to_numpy() for name in plain.column_names if name != "view"}
    num_pairs = plain.num_rows
    gain, gain_halves = np.full(num_pairs, np.nan), np.full((num_pairs, 2), np.nan)
    information_halves = _halves(plain)
    reads_intents, has_intents = np.zeros(num_pairs, bool), np.zeros(num_pairs, bool)
    if intents is not None:
        tilde = scores.filter(pc.field("view") == "intent")
        pool = pc.index_in(plain["row"], intents["row"]).to_numpy()  # pyright: ignore[reportAttributeAccessIssue]
        has_intents = np.array([any(map(len, names)) for names in intents["intents"].to_pylist()], bool)[pool]
        intent_columns = {name: tilde[name].to_numpy() for name in tilde.column_names if name != "view"}
        gain = intent_columns["mutual_information"] - columns["mutual_information"]  # Δ = g̃ − g
        gain_halves = _halves(tilde) - information_halves
        if rule.confidence == "certainty":
            gain, gain_halves = -gain, -gain_halves
        reads_intents = gain > rule.gain_threshold
        columns = {name: np.where(reads_intents, intent_columns[name], columns[name]) for name in columns}
    return ChosenScores(
        pool_id=columns["pool_id"],
        row=columns["row"].astype(np.int64),
        candidate=columns["candidate"].astype(np.int64),
        gold=columns["label"].astype(np.int64),
        reads_intents=reads_intents,
        prob=columns["prob_mean"].astype(np.float64),
        prob_var=columns["prob_var"].astype(np.float64),
        logit=columns["logit_mean"].astype(np.float64),
        logit_var=columns["logit_var"].astype(np.float64),
        information=columns["mutual_information"].astype(np.float64),
        gain=gain,
        num_passes=columns["num_passes"].astype(np.int64),
        has_intents=has_intents,
        information_halves=information_halves,
        gain_halves=gain_halves,
    )


def pool_scores(shards: Iterable[Shard], rule: GainRule) -> PoolScores:
    """Return the scores of the pools of known labels, in the views that a rule with an absolute λ chooses."""
    tables: list[pa.Table] = []
    for shard in shards:
        chosen = choose_views(*shard, rule)
        columns = {"pool_id": chosen.pool_id, "candidate": chosen.candidate, "label": chosen.gold}
        tables.append(pa.table({**columns, "logit": chosen.ranking, "prob": chosen.prob}))
    return PoolScores.from_predictions(pa.concat_tables(tables))


def _halves(scores: pa.Table) -> Floats:
    return np.stack([scores["information_even"].to_numpy(), scores["information_odd"].to_numpy()], 1)
