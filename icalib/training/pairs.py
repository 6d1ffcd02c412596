"""Curriculum and validation of answers and intents, from labelled and pseudo-labelled pools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor, nn

from icalib.core.seeding import child_seed
from icalib.data.encoding import Layout, TokenStore
from icalib.data.schema import UNKNOWN_LABEL
from icalib.data.selection import Selection
from icalib.encoders.forward_batches import forward_batches
from icalib.encoders.transfer import to_device
from icalib.encoders.transformer import Batch
from icalib.inference.mixture import mixture_moments
from icalib.inference.pool_softmax import pool_softmax
from icalib.losses.binary import AbstractLoss, Link
from icalib.metrics.answers import answer_metrics
from icalib.metrics.calibration import nll_from_logits
from icalib.metrics.pairs import PoolScores
from icalib.models.pool_inputs import PoolInputs
from icalib.models.precision import autocast, resolve_precision
from icalib.models.ranker import Ranker, make_batch
from icalib.training.examples import Example, PairLabels, encode, epoch_batches, target
from icalib.training.settings import TrainingSettings

_POOLS_TOGETHER = 256  # of which many have the same candidates


class AnswerCurriculum:
    """Batches of pairs in either view and of intents of utterances, one task per batch (ICAST Eq. 15)."""

    def __init__(
        self,
        pools: Sequence[PairLabels],
        store: TokenStore,
        layout: Layout,
        loss: AbstractLoss,
        settings: TrainingSettings,
        *,
        num_intents: int,
        seed: int,
    ) -> None:
        self._pools, self._store, self._layout, self._loss = pools, store, layout, loss
        self._settings, self._num_intents, self._seed = settings, num_intents, seed

    def batches(self, epoch: int) -> list[list[Example]]:
        """Return all batches of an epoch."""
        return epoch_batches(
            self._pools,
            self._store,
            self._layout,
            num_negatives=self._settings.train_negatives,
            batch_size=self._settings.batch_size,
            max_tokens=self._settings.max_tokens_per_batch,
            rng=np.random.default_rng(child_seed(self._seed, "epoch", epoch)),
            balanced=self._loss.balanced,
        )

    def losses(
        self, forward: Callable[..., Any], examples: Sequence[Example], device: torch.device
    ) -> tuple[str, Tensor]:
        """Return the summed loss of pairs, or of utterances (mean over the K intents)."""
        task = examples[0].task
        batch, targets = self.inputs(examples, device)
        if task == "intent":
            logits = forward("intent", batch)
            return task, nn.functional.binary_cross_entropy_with_logits(logits, targets, reduction="none").mean(1).sum()
        return task, forward("answer", batch, labels_B=targets[:, 0], loss=self._loss).sum()

    def inputs(self, examples: Sequence[Example], device: torch.device) -> tuple[Batch, Tensor]:
        """Return encoder inputs and targets ([B, 1], or [B, K] for intents) of examples of one task."""
        encoded = [encode(example, self._store.pool(example.labels.row), self._layout) for example in examples]
        targets = np.stack([target(example, self._num_intents) for example in examples])
        return make_batch(encoded, self._layout, device), to_device(torch.from_numpy(targets), device)

    def pairs(self) -> list[Example]:
        """Return every pair of the first epoch, in each of its views and in the order of its batches."""
        return [example for batch in self.batches(0) for example in batch if example.task != "intent"]


class PlainValidation:
    """Validation metrics from one pass without dropout over the plain view, cheap enough for every epoch.

    Heads with a posterior are judged by the probability that they predict, E σ(f), whose calibration is not that of
    σ(E f).

    Args:
        rows: labelled validation pools; R@1 and MAP are of those with a right candidate.
        link: maps logits to probabilities; with a softmax, F1 counts only each pool's best candidate as predicted
            right.
        prepare: called with the ranker, this worker's rank and their number before each pass, to compute the posterior
            of a head that has one.
    """

    def __init__(
        self,
        store: TokenStore,
        rows: Sequence[int],
        layout: Layout,
        settings: TrainingSettings,
        device: torch.device,
        *,
        link: Link = "sigmoid",
        prepare: Callable[[Ranker, int, int], None] | None = None,
    ) -> None:
        self._store, self._rows, self._layout, self._device, self._prepare = store, rows, layout, device, prepare
        self._link: Link = link
        self._settings = settings
        self._precision = resolve_precision(settings.precision, device)
        self._max_tokens = settings.max_tokens_per_batch

    def __call__(self, ranker: Ranker, rank: int, world_size: int) -> list[tuple[int, list[float], list[int]]]:
        """Return (row, logits of the candidates, their labels) of every world-size-th pool."""
        rows = self._rows[rank::world_size]
        remember_similarities(ranker, self._store, rows, self._settings, self._device)
        compute = ranker.answer_logits
        if self._prepare is not None:
            self._prepare(ranker, rank, world_size)
            compute = partial(predictive_logits, ranker)
        pools = list(self._store.pools(rows))
        inputs = PoolInputs.of(pools, self._layout, None)
        logits = values_of_pairs(compute, inputs, self._layout, self._device, self._precision, self._max_tokens)
        ends = np.cumsum([len(pool.candidates) for pool in pools])
        parts = np.split(logits, ends[:-1]) if pools else []
        labels = [pool.is_right().astype(np.int64).tolist() for pool in pools]
        return [(pool.row, part.tolist(), right) for pool, part, right in zip(pools, parts, labels, strict=True)]

    def metrics(self, results: Sequence[list[tuple[int, list[float], list[int]]]]) -> dict[str, float]:
        """Compute F1 (at a fitted threshold, or by argmax), R@1, MAP, ECE and NLL, by tag."""
        pools = sorted(pool for result in results for pool in result)
        logit = np.concatenate([logits for _, logits, _ in pools])
        offsets = np.cumsum([0] + [len(logits) for _, logits, _ in pools])
        label = np.concatenate([np.array(labels, np.int64) for _, _, labels in pools])
        softmax = self._link == "softmax"
        prob = pool_softmax(logit, np.diff(offsets)) if softmax else expit(logit)
        scores = PoolScores(tuple(str(row) for row, _, _ in pools), logit, prob, label, offsets)
        return answer_metrics(scores, by_argmax=softmax, loss=None if softmax else nll_from_logits(logit, label))


def remember_similarities(
    ranker: Ranker, store: TokenStore, rows: Sequence[int], settings: TrainingSettings, device: torch.device
) -> None:
    """Let a ranker's bi-encoder remember the similarities of the pairs of some pools.

    ZeRO stage 3 is left out: its workers must run the same passes, and their batches have different pairs.
    """
    if ranker.bi_encoder is None or settings.zero_stage == 3:
        return
    ranker.to(device)
    layout = ranker.layout
    with autocast(device, resolve_precision(settings.precision, device)):
        for start in range(0, len(rows), _POOLS_TOGETHER):
            pools = [store.pool(row) for row in rows[start : start + _POOLS_TOGETHER]]
            ranker.bi_encoder.remember(PoolInputs.of(pools, layout, None).inputs, device)


def validation_rows(store: TokenStore, selection: Selection) -> list[int]:
    """Return the rows of the selected validation pools of known label, with or without a right candidate."""
    rows = selection.rows("validation", "all", store.column("label_order"))
    return rows[store.column("label")[rows] != UNKNOWN_LABEL].tolist()


def predictive_logits(ranker: Ranker, batch: Batch) -> Tensor:
    """Compute the logits of E σ(f) over the posterior of each pair's logit f, [B]."""
    return torch.logit(mixture_moments(*ranker.answer_posterior(batch)).prob_mean, eps=1e-15)


def values_of_pairs(
    compute: Callable[[Batch], Tensor],
    pools: PoolInputs,
    layout: Layout,
    device: torch.device,
    precision: Any,
    max_tokens: int,
) -> Any:
    """Compute what a forward pass returns for each pair, [N, ...], in the order of `pools`."""
    parts: list[Any] = []
    order: list[Any] = []
    with torch.inference_mode(), autocast(device, precision):
        for batch in forward_batches([len(ids) for ids, _ in pools.inputs], max_tokens, device):
            inputs = make_batch([pools.inputs[int(index)] for index in batch], layout, device)
            parts.append(compute(inputs).float())
            order.append(pools.pairs(batch))
    if not parts:
        return np.zeros(0)
    values = np.zeros((pools.num_pairs, *parts[0].shape[1:]))
    values[np.concatenate(order)] = torch.cat(parts).cpu().numpy()  # read after all batches are queued on a GPU
    return values
