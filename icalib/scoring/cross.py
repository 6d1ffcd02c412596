"""The cross-encoder's column of some pools: predicts their intents, then reads the pairs in both views.

A result is a function of (checkpoint, pools, seed).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import override

from icalib.core.seeding import child_seed
from icalib.data.encoding import Encoded, Intents, TokenPool
from icalib.encoders.transfer import forward_batches
from icalib.encoders.transformer import Batch
from icalib.heads.head import LogitPosterior
from icalib.models.precision import Precision, autocast
from icalib.models.ranker import PoolInputs, Ranker, make_batch
from icalib.scoring.column import Column, Columns, LoadedPart, View, added, scores_of_columns
from icalib.scoring.gain import AUTHORS_CHOICE, IntentChoice, Shard
from icalib.scoring.offsets import Offsets
from icalib.scoring.scores import intent_shard, pair_columns
from icalib.uncertainty.estimator import AbstractEstimator, check_values, checked_components


@dataclass(frozen=True)
class LoadedCross(LoadedPart):
    """Cross-encoder, estimator and device of scoring."""

    ranker: Ranker
    estimator: AbstractEstimator
    device: torch.device
    precision: Precision
    max_tokens: int
    choice: IntentChoice = AUTHORS_CHOICE

    @property
    @override
    def module(self) -> Ranker:
        return self.ranker

    @override
    def with_estimator(self, estimator: AbstractEstimator.Config) -> LoadedCross:
        return replace(self, estimator=estimator.build())

    @override
    def columns(
        self, pools: Sequence[TokenPool], seed: int, *, with_intents: bool, known: Sequence[Intents] | None = None
    ) -> tuple[Columns, Sequence[Intents] | None]:
        """Return the plain view, and with intents, predicted by the cross-encoder if none are known, theirs."""
        _set_training(self.ranker, False)
        plain = _view_column(self, pools, None, "plain", seed)
        if not with_intents:
            return {"plain": plain}, None
        intents = predict_intents(self, pools) if known is None else known
        return {"plain": plain, "intent": _intent_column(self, pools, intents, plain, seed)}, intents

    def batches(self, inputs: Sequence[Encoded]) -> list[npt.NDArray[np.int64]]:
        """Return the indices of the inputs in each batch."""
        return forward_batches([len(ids) for ids, _ in inputs], self.max_tokens, self.device)


def score_token_pools(
    context: LoadedCross, pools: Sequence[TokenPool], *, with_intents: bool, seed: int, offsets: Offsets | None = None
) -> Shard:
    """Score pools by the cross-encoder and the offsets of the other parts (SCORE_SCHEMA, SHARD_INTENT_SCHEMA).

    The predicted intents are those of the offsets, if they have any.
    """
    known = None if offsets is None else offsets.of_intents(pools)
    columns: Columns
    columns, intents = context.columns(pools, seed, with_intents=with_intents, known=known)
    if offsets is not None:
        others = {view: Column.certain(offsets.of_pools(pools, view)) for view in columns}
        columns = {view: added([column, others[view]], [1.0, 1.0], 0.0) for view, column in columns.items()}
    softmax = context.ranker.config.link == "softmax"
    names = pair_columns(pools, [pool.row for pool in pools], "plain")
    scores = scores_of_columns(names, columns, context.estimator, softmax=softmax)
    return scores, None if intents is None else intent_shard(pools, intents)


def predict_intents(context: LoadedCross, pools: Sequence[TokenPool]) -> list[list[list[int]]]:
    """Predict the intents of every utterance given those predicted for earlier utterances, without dropout.

    Returns:
        For each pool, the intents of each of its utterances.
    """
    chosen: list[list[list[int]]] = [[] for _ in pools]
    for utterance in range(max((len(pool.context) for pool in pools), default=0)):
        present = [index for index, pool in enumerate(pools) if len(pool.context) > utterance]
        questions = [context.ranker.layout.intent_question(pools[i].context, chosen[i], utterance) for i in present]
        probs_NK = _intent_probs(context, questions)
        for index, probs_K in zip(present, probs_NK, strict=True):
            chosen[index].append(context.choice.chosen(probs_K).tolist())
    return chosen


def _intent_probs(context: LoadedCross, questions: Sequence[Encoded]) -> npt.NDArray[np.float64]:
    _set_training(context.ranker, False)
    probs = np.zeros((len(questions), len(context.ranker.config.intents)))
    batches, computed = context.batches(questions), list[torch.Tensor]()
    with torch.inference_mode(), autocast(context.device, context.precision):
        for batch in batches:
            inputs = make_batch([questions[int(index)] for index in batch], context.ranker.layout, context.device)
            computed.append(torch.sigmoid(context.ranker.intent_logits(inputs).double()))
    for batch, probs_BK in zip(batches, computed, strict=True):
        probs[batch] = probs_BK.cpu().numpy()
    return probs


def _intent_column(
    context: LoadedCross, pools: Sequence[TokenPool], intents: Sequence[Intents], plain: Column, seed: int
) -> Column:
    """Return the intent view; a pool without intents has the same text in both, and the same values."""
    has_intents = np.array([any(map(len, names)) for names in intents])
    is_read = np.repeat(has_intents, [len(pool.candidates) for pool in pools])
    column = Column(plain.mean_SN.copy(), plain.var_SN.copy())
    read = np.flatnonzero(has_intents).tolist()
    if read:
        found = _view_column(context, [pools[i] for i in read], [intents[i] for i in read], "intent", seed)
        column.mean_SN[:, is_read], column.var_SN[:, is_read] = found.mean_SN, found.var_SN
    return column


def _view_column(
    context: LoadedCross, pools: Sequence[TokenPool], intents: Sequence[Intents] | None, view: View, seed: int
) -> Column:
    inputs = PoolInputs.of(pools, context.ranker.layout, intents)
    batches, values = context.batches(inputs.inputs), list[torch.Tensor]()
    places = [inputs.pairs(batch) for batch in batches]
    # Nothing is read back before all batches are queued, so that a GPU never waits for this process.
    try:
        for number, batch in enumerate(batches):
            pairs = make_batch([inputs.inputs[int(i)] for i in batch], context.ranker.layout, context.device)
            with torch.inference_mode(), autocast(context.device, context.precision):
                model = BatchModel(context.ranker, pairs, child_seed(seed, view, number), context.max_tokens)
                components = checked_components(context.estimator, model, len(places[number]))
            values.append(torch.stack([components.mean_SB.double(), components.var_SB.double()]))
    finally:
        _set_training(context.ranker, False)
    num_components = values[0].shape[1] if values else 1
    found_2SN = np.zeros((2, num_components, inputs.num_pairs))
    for pairs_B, values_2SB in zip(places, values, strict=True):
        found_2SN[:, :, pairs_B] = values_2SB.cpu().numpy()
    check_values(context.estimator, *found_2SN)
    return Column(found_2SN[0], found_2SN[1])


def _set_training(ranker: Ranker, training: bool) -> None:
    """Switch dropout on or off; walking through all modules takes milliseconds, so only if the mode changes."""
    if ranker.training != training:
        ranker.train(training)


@dataclass(frozen=True)
class BatchModel:
    """A ranker and a batch, as the model that an estimator queries."""

    ranker: Ranker
    inputs: Batch
    seed: int
    max_tokens: int = 0
    """Padded tokens of a forward pass on a GPU, which reads a smaller batch several times at once."""

    def logits(self) -> torch.Tensor:
        """Compute the logits [B] of a pass without dropout."""
        _set_training(self.ranker, False)
        return self.ranker.answer_logits(self.inputs)

    def dropout_logits(self, num_passes: int) -> torch.Tensor:
        """Compute the logits [S, B] of passes with dropout, as many at once as a GPU has work for."""
        _set_training(self.ranker, True)
        ids_BL = self.inputs.ids_BL
        at_once = 1 if ids_BL.device.type == "cpu" else max(1, self.max_tokens // ids_BL.numel())
        found: list[torch.Tensor] = []
        for first in range(0, num_passes, at_once):
            torch.manual_seed(child_seed(self.seed, first))
            passes = min(at_once, num_passes - first)
            found.append(self.ranker.answer_logits(self.inputs.repeated(passes)).view(passes, -1))
        return torch.cat(found)

    def posterior(self) -> LogitPosterior:
        """Compute the posterior of the logits, without dropout."""
        _set_training(self.ranker, False)
        return self.ranker.answer_posterior(self.inputs)
