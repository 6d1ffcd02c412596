"""Curriculum and validation of answers and intents, from labelled and pseudo-labelled pools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
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
from icalib.metrics.calibration import nll_from_logits
from icalib.metrics.pairs import PoolScores
from icalib.metrics.summary import answer_metrics
from icalib.models.pool_inputs import PoolInputs
from icalib.models.precision import autocast, resolve_precision
from icalib.models.ranker import Ranker, make_batch
from icalib.scoring.offsets import Offsets
from icalib.training.examples import Example, PairLabels, encode, epoch_batches, target
from icalib.training.settings import TrainingSettings


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
        offsets: Offsets | None = None,
    ) -> None:
        self._pools, self._store, self._layout, self._loss = pools, store, layout, loss
        self._settings, self._num_intents, self._seed, self._offsets = settings, num_intents, seed, offsets

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
        offset_B = None if self._offsets is None else [self._offset(self._offsets, example) for example in examples]
        return make_batch(encoded, self._layout, device, offset_B), to_device(torch.from_numpy(targets), device)

    def _offset(self, offsets: Offsets, example: Example) -> float:
        if example.task == "intent":
            return 0.0
        candidate = int(example.labels.candidates[example.position])
        return offsets.of_pair(example.labels.row, candidate, "intent" if example.task == "answer_intent" else "plain")

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
        offsets: logits of the ranker's other parts; None: 0.
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
        offsets: Offsets | None = None,
        prepare: Callable[[Ranker, int, int], None] | None = None,
    ) -> None:
        self._store, self._rows, self._layout, self._device, self._prepare = store, rows, layout, device, prepare
        self._link: Link = link
        self._offsets = offsets
        self._precision: Literal["fp32", "bf16"] = resolve_precision(settings.precision, device)
        self._max_tokens = settings.max_tokens_per_batch

    def __call__(self, ranker: Ranker, rank: int, world_size: int) -> list[tuple[int, list[float], list[int]]]:
        """Return (row, logits of the candidates, their labels) of every world-size-th pool."""
        rows = self._rows[rank::world_size]
        compute = ranker.answer_logits
        if self._prepare is not None:
            self._prepare(ranker, rank, world_size)
            compute = partial(predictive_logits, ranker)
        pools = list(self._store.pools(rows))
        inputs = PoolInputs.of(pools, self._layout, None)
        logits = self._values(
            compute, inputs, None if self._offsets is None else self._offsets.of_pools(pools, "plain")
        )
        ends = np.cumsum([len(pool.candidates) for pool in pools])
        parts = np.split(logits, ends[:-1]) if pools else []
        labels = [pool.is_right().astype(np.int64).tolist() for pool in pools]
        return [(pool.row, part.tolist(), right) for pool, part, right in zip(pools, parts, labels, strict=True)]

    def _values(
        self, compute: Callable[[Batch], Tensor], pools: PoolInputs, offset_N: npt.NDArray[np.float64] | None
    ) -> npt.NDArray[np.float64]:
        """Compute the logit of each pair [N], in the order of `pools`."""
        values = np.zeros(pools.num_pairs)
        batches = forward_batches([len(ids) for ids, _ in pools.inputs], self._max_tokens, self._device)
        computed: list[Tensor] = []
        with torch.inference_mode(), autocast(self._device, self._precision):
            for batch in batches:
                offset_B = None if offset_N is None else offset_N[pools.pairs(batch)]
                pairs = [pools.inputs[int(index)] for index in batch]
                computed.append(compute(make_batch(pairs, self._layout, self._device, offset_B)).float())
        for batch, values_B in zip(batches, computed, strict=True):  # read after all batches are queued on a GPU
            values[pools.pairs(batch)] = values_B.cpu().numpy()
        return values

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


def validation_rows(store: TokenStore, selection: Selection) -> list[int]:
    """Return the rows of the selected validation pools of known label, with or without a right candidate."""
    rows = selection.rows("validation", "all", store.column("label_order"))
    return rows[store.column("label")[rows] != UNKNOWN_LABEL].tolist()


def predictive_logits(ranker: Ranker, batch: Batch) -> Tensor:
    """Compute the logits of E σ(f) over the posterior of each pair's logit f, [B]."""
    return torch.logit(mixture_moments(*ranker.answer_posterior(batch)).prob_mean, eps=1e-15)
