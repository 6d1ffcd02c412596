"""Scoring a shard of pools: predicts their intents, then scores both views with an estimator.

A shard's result is a function of (checkpoint, rows, seed).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from icalib.core.seeding import child_seed
from icalib.data.encoding import Encoded, Intents, Layout, TokenPool, TokenStore
from icalib.data.schema import Pool, candidate_labels
from icalib.encoders.forward_batches import forward_batches
from icalib.encoders.transformer import Batch
from icalib.heads.head import LogitPosterior
from icalib.inference.mutual_information import Moments, binary_entropy
from icalib.inference.pool_softmax import pool_softmax
from icalib.models.pool_inputs import PoolInputs
from icalib.models.precision import Precision, autocast, resolve_precision
from icalib.models.ranker import Ranker, make_batch
from icalib.scoring.gain import AUTHORS_CHOICE, IntentChoice
from icalib.uncertainty.estimator import AbstractEstimator

SCORE_SCHEMA = pa.schema(
    [
        ("pool_id", pa.string()),
        ("row", pa.int64()),  # the pool's row in its split
        ("candidate", pa.int32()),
        ("label", pa.int32()),  # gold: 1, 0, or −1 for unknown; for reports only, never used by a method
        ("view", pa.string()),
        ("prob_mean", pa.float64()),
        ("prob_var", pa.float64()),
        ("logit_mean", pa.float64()),
        ("logit_var", pa.float64()),
        ("mutual_information", pa.float64()),  # nats
        ("num_passes", pa.int32()),
        ("information_even", pa.float64()),  # g of the even passes, and of the odd ones; null without such halves
        ("information_odd", pa.float64()),
    ]
)
"""One row per pair and view."""

SHARD_INTENT_SCHEMA = pa.schema(
    [
        ("pool_id", pa.string()),
        ("row", pa.int64()),
        ("intents", pa.list_(pa.list_(pa.int32()))),
    ]
)
"""One row per pool: the predicted intents of each utterance of its context."""

_MOMENTS = ("prob_mean", "prob_var", "logit_mean", "logit_var", "mutual_information")
_HALVES = ("information_even", "information_odd")


@dataclass(frozen=True)
class ScoringContext:
    """Model, estimator and device of scoring."""

    ranker: Ranker
    layout: Layout
    estimator: AbstractEstimator
    device: torch.device
    precision: Precision
    max_tokens: int
    intent_choice: IntentChoice = AUTHORS_CHOICE

    def batches(self, inputs: Sequence[Encoded]) -> list[npt.NDArray[np.int64]]:
        """Return the indices of the inputs in each batch."""
        return forward_batches([len(ids) for ids, _ in inputs], self.max_tokens, self.device)

    def autocast(self) -> torch.autocast:
        """Return the autocast context of the precision."""
        return autocast(self.device, resolve_precision(self.precision, self.device))


def score_pools(
    context: ScoringContext, store: TokenStore, rows: Sequence[int], *, with_intents: bool, seed: int
) -> tuple[pa.Table, pa.Table | None]:
    """Score pools (SCORE_SCHEMA); with intents, also score the intent view and return SHARD_INTENT_SCHEMA.

    Args:
        seed: determines every dropout mask; each shard needs its own.
    """
    pools = list(store.pools(rows))
    _remember_similarities(context, pools)
    return score_token_pools(context, pools, with_intents=with_intents, seed=seed)


def score_token_pools(
    context: ScoringContext, pools: Sequence[TokenPool], *, with_intents: bool, seed: int
) -> tuple[pa.Table, pa.Table | None]:
    """Score pools as `score_pools` does, and leave alone what the bi-encoder remembers."""
    _set_training(context.ranker, False)
    tables = [_view_table(context, pools, None, "plain", seed)]
    if not with_intents:
        return tables[0], None
    intents = predict_intents(context, pools)
    tables.append(_intent_table(context, pools, intents, tables[0], seed))
    columns = [[pool.pool_id for pool in pools], [pool.row for pool in pools], intents]
    chosen = pa.table(columns, schema=SHARD_INTENT_SCHEMA)
    return pa.concat_tables(tables), chosen


def _remember_similarities(context: ScoringContext, pools: Sequence[TokenPool]) -> None:
    """Let the bi-encoder encode each distinct text of these pools once, and forget those of earlier ones."""
    _set_training(context.ranker, False)
    if context.ranker.bi_encoder is not None:
        context.ranker.bi_encoder.forget()
        with torch.inference_mode(), context.autocast():
            context.ranker.bi_encoder.remember(PoolInputs.of(pools, context.layout, None).inputs, context.device)


def average_members(tables: Sequence[pa.Table]) -> pa.Table:
    """Average the members' scores of the same pairs (SCORE_SCHEMA): the moments of their even mixture.

    Each member's mean entropy is H(p̄) − g, so the mixture's mutual information follows from the members' p̄ and g.
    """
    if len(tables) == 1:
        return tables[0]
    prob, prob_var, logit, logit_var, information, passes = (
        np.stack([table[name].to_numpy() for table in tables])
        for name in ("prob_mean", "prob_var", "logit_mean", "logit_var", "mutual_information", "num_passes")
    )
    mean_entropy = (_entropy(prob) - information).mean(0)
    columns = {
        "prob_mean": prob.mean(0),
        "prob_var": prob_var.mean(0) + prob.var(0),  # law of total variance
        "logit_mean": logit.mean(0),
        "logit_var": logit_var.mean(0) + logit.var(0),
        "mutual_information": np.maximum(_entropy(prob.mean(0)) - mean_entropy, 0.0),
        "num_passes": passes.sum(0),
    }
    columns |= dict.fromkeys(_HALVES, np.full(tables[0].num_rows, np.nan))
    return score_table({name: tables[0][name] for name in SCORE_SCHEMA.names} | columns)


def score_table(columns: Mapping[str, Any]) -> pa.Table:
    """Return a table (SCORE_SCHEMA) of these columns; NaN becomes null."""
    arrays = [
        column if isinstance(column := columns[field.name], pa.ChunkedArray)
        else pa.array(column, field.type, from_pandas=True)
        for field in SCORE_SCHEMA
    ]  # fmt: skip
    return pa.table(arrays, schema=SCORE_SCHEMA)


def _entropy(prob: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return binary_entropy(torch.from_numpy(prob)).numpy()


def predict_intents(context: ScoringContext, pools: Sequence[TokenPool]) -> list[list[list[int]]]:
    """Predict the intents of every utterance given those predicted for earlier utterances, without dropout.

    Returns:
        For each pool, the intents of each of its utterances.
    """
    chosen: list[list[list[int]]] = [[] for _ in pools]
    for utterance in range(max((len(pool.context) for pool in pools), default=0)):
        present = [index for index, pool in enumerate(pools) if len(pool.context) > utterance]
        questions = [context.layout.intent_question(pools[i].context, chosen[i], utterance) for i in present]
        probs_NK = _intent_probs(context, questions)
        for index, probs_K in zip(present, probs_NK, strict=True):
            chosen[index].append(context.intent_choice.chosen(probs_K).tolist())
    return chosen


def _intent_probs(context: ScoringContext, questions: Sequence[Encoded]) -> npt.NDArray[np.float64]:
    probs = np.zeros((len(questions), len(context.ranker.config.intents)))
    batches, computed = context.batches(questions), list[torch.Tensor]()
    with torch.inference_mode(), context.autocast():
        for batch in batches:
            inputs = make_batch([questions[int(index)] for index in batch], context.layout, context.device)
            computed.append(torch.sigmoid(context.ranker.intent_logits(inputs).double()))
    for batch, probs_BK in zip(batches, computed, strict=True):
        probs[batch] = probs_BK.cpu().numpy()
    return probs


def _intent_table(
    context: ScoringContext, pools: Sequence[TokenPool], intents: Sequence[Intents], plain: pa.Table, seed: int
) -> pa.Table:
    """Score the intent view; a pool without intents has the same text in both views, and the same scores."""
    has_intents = np.array([any(map(len, names)) for names in intents])
    is_read = np.repeat(has_intents, [len(pool.candidates) for pool in pools])
    same = plain.filter(pa.array(~is_read))
    view = same.schema.get_field_index("view")
    parts = [same.set_column(view, same.schema.field(view), pa.array(["intent"] * same.num_rows, pa.string()))]
    read = np.flatnonzero(has_intents).tolist()
    if read:
        parts.append(_view_table(context, [pools[i] for i in read], [intents[i] for i in read], "intent", seed))
    order = np.argsort(np.concatenate([np.flatnonzero(~is_read), np.flatnonzero(is_read)]), kind="stable")
    return pa.concat_tables(parts).take(pa.array(order))


def _view_table(
    context: ScoringContext, pools: Sequence[TokenPool], intents: Sequence[Intents] | None, view: str, seed: int
) -> pa.Table:
    moments = _pair_moments(context, PoolInputs.of(pools, context.layout, intents), view, seed)
    if context.ranker.config.link == "softmax":
        sizes = np.array([len(pool.candidates) for pool in pools])
        moments["prob_mean"] = pool_softmax(moments["logit_mean"], sizes)
    return score_table({**pair_columns(pools, [pool.row for pool in pools], view), **moments})


def pair_columns(pools: Sequence[Pool] | Sequence[TokenPool], rows: Sequence[int], view: str) -> dict[str, Any]:
    """Return the columns of SCORE_SCHEMA that name the pairs of some pools, whose rows in their split are given."""
    sizes = [len(pool.candidates) for pool in pools]
    return {
        "pool_id": np.repeat(np.array([pool.pool_id for pool in pools], dtype=object), sizes),
        "row": np.repeat(np.asarray(rows, np.int64), sizes),
        "candidate": np.concatenate([np.arange(size) for size in sizes]),
        "label": np.concatenate(
            [candidate_labels(pool.label, pool.also_right, len(pool.candidates)) for pool in pools]
        ),
        "view": np.full(sum(sizes), view, dtype=object),
    }


def _pair_moments(
    context: ScoringContext, pools: PoolInputs, view: str, seed: int
) -> dict[str, npt.NDArray[np.float64]]:
    names = (*_MOMENTS, *_HALVES, "num_passes")
    columns = {name: np.zeros(pools.num_pairs) for name in names}
    batches = context.batches(pools.inputs)
    # Nothing is read back before all batches are queued, so that a GPU never waits for this process.
    computed = [
        _stacked(_batch_moments(context, [pools.inputs[int(i)] for i in batch], child_seed(seed, view, number)))
        for number, batch in enumerate(batches)
    ]
    for batch, values_MB in zip(batches, computed, strict=True):
        pairs = pools.pairs(batch)
        for name, values_B in zip(names, values_MB.cpu().numpy(), strict=True):
            columns[name][pairs] = values_B
    return columns


def _stacked(moments: Moments) -> torch.Tensor:
    """Return _MOMENTS, _HALVES (NaN without halves) and the number of passes of each pair, float64 [8, B]."""
    unknown = torch.full_like(moments.prob_mean, math.nan)
    passes = torch.full_like(moments.prob_mean, moments.num_passes)
    return torch.stack(
        [
            *(getattr(moments, name) for name in _MOMENTS),
            *(moments.half_information or (unknown, unknown)),
            passes,
        ]
    )


def _batch_moments(context: ScoringContext, inputs: Sequence[Encoded], seed: int) -> Moments:
    model = BatchModel(context.ranker, make_batch(inputs, context.layout, context.device), seed)
    try:
        with torch.inference_mode(), context.autocast():
            return context.estimator.estimate(model)
    finally:
        _set_training(context.ranker, False)


def _set_training(ranker: Ranker, training: bool) -> None:
    """Switch dropout on or off; walking through all modules takes milliseconds, so only if the mode changes."""
    if ranker.training != training:
        ranker.train(training)


def estimated(ranker: Ranker, estimator: AbstractEstimator, batch: Batch) -> Moments:
    """Return the moments of a batch of pairs, in the precision of the weights."""
    with torch.inference_mode():
        return estimator.estimate(BatchModel(ranker, batch, seed=0))


@dataclass(frozen=True)
class BatchModel:
    """A ranker and a batch, as the model that an estimator queries."""

    ranker: Ranker
    inputs: Batch
    seed: int

    def logits(self, *, stochastic: bool, number: int) -> torch.Tensor:
        """Compute the logits [B] of one pass, with dropout if `stochastic`."""
        _set_training(self.ranker, stochastic)
        if stochastic:
            torch.manual_seed(child_seed(self.seed, number))
        return self.ranker.answer_logits(self.inputs)

    def with_late_dropout(self, num_layers: int) -> BatchModel:
        """Return the model with the states below the encoder's top layers, computed without dropout."""
        _set_training(self.ranker, False)
        return replace(self, inputs=self.ranker.partly_encoded(self.inputs, num_layers))

    def posterior(self) -> LogitPosterior:
        """Compute the posterior of the logits, without dropout."""
        _set_training(self.ranker, False)
        return self.ranker.answer_posterior(self.inputs)
