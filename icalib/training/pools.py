"""Curriculum of whole labelled pools, for losses over all candidates of a pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from icalib.core.seeding import child_seed
from icalib.data.batching import shuffled_batches
from icalib.data.encoding import Ids, Layout, Lists, Numbers, TokenStore
from icalib.encoders.transfer import to_device
from icalib.losses.listwise import AbstractPoolLoss
from icalib.models.ranker import make_batch
from icalib.training.epochs import Batches
from icalib.training.examples import LabelledPools, PairLabels, Positions, sampled_positions
from icalib.training.settings import TrainingSettings


@dataclass
class PoolCurriculum:
    """Batches of pools, each with its right candidates and wrong ones that are drawn and shuffled again every epoch.

    Shuffling is the augmentation of JM (Zhang et al. 2021): the position of the right candidate carries no information.
    `batch_size` counts pools. Where some have no right candidate, the loss has "none of these" in every pool.
    """

    pools: Sequence[PairLabels]
    store: TokenStore
    layout: Layout
    loss: AbstractPoolLoss
    settings: TrainingSettings
    seed: int = field(kw_only=True)

    def batches(self, epoch: int) -> Batches[PairLabels]:
        """Return all batches of an epoch, of pools with the candidates in the order in which the encoder reads them."""
        settings = self.settings
        rng = np.random.default_rng(child_seed(self.seed, "epoch", epoch))
        drawn = Lists.joined([self._draw(pool.labels, rng) for pool in self.pools])
        inputs = [self._lengths(number, drawn.at(number)) for number in range(len(self.pools))]
        # Counting every pool as the largest one ensures that no combination of pools exceeds `max_tokens_per_batch`.
        max_inputs = max(map(len, inputs), default=0)
        lengths = max_inputs * np.array([ids.max() for ids in inputs], np.int64)
        batches = shuffled_batches(lengths, settings.batch_size, settings.max_tokens_per_batch, rng)
        return Batches(batches, lambda number: self.pools[number].at(drawn.at(number)))

    def _draw(self, labels: npt.NDArray[Any], rng: np.random.Generator) -> Positions:
        drawn = sampled_positions(labels, self.settings.train_negatives, rng)
        return drawn[rng.permutation(len(drawn))]

    @cached_property
    def _ids(self) -> tuple[Numbers, Lists]:
        """Number of ids of the context of each pool in the store, and of its candidates."""
        return self.layout.context_lengths(self.store.lengths("context")), self.store.lengths("candidates")

    @cached_property
    def _with_none(self) -> bool:
        """Whether a pool has no right candidate."""
        return not LabelledPools.of(self.pools).labels.totals().all()

    def _lengths(self, number: int, drawn: Positions) -> Numbers:
        """Return the number of ids in each input of a pool with some of its candidates."""
        (contexts, texts), labels = self._ids, self.pools[number]
        return self.layout.input_lengths(int(contexts[labels.row]), texts.at(labels.row)[labels.candidates[drawn]])

    def losses(
        self, forward: Callable[..., Any], examples: Sequence[PairLabels], device: torch.device
    ) -> tuple[str, Tensor]:
        """Return the summed loss of pools."""
        inputs = [encoded for example in examples for encoded in self.layout.inputs(*self._texts(example))]
        labels = np.concatenate([example.labels for example in examples]).astype(np.float32)
        sizes = [len(example.labels) for example in examples]
        loss = _PoolLosses(self.loss, sizes, self._with_none)
        batch = make_batch(inputs, self.layout, device)
        losses_P = forward("answer", batch, labels_B=to_device(torch.from_numpy(labels), device), loss=loss)
        return "answer_plain", losses_P.sum()

    def _texts(self, labels: PairLabels) -> tuple[list[Ids], None, list[Ids]]:
        tokens = self.store.pool(labels.row)
        return tokens.context, None, [tokens.candidates[int(index)] for index in labels.candidates]


@dataclass
class _PoolLosses:
    """Loss of a batch of whole pools, for `Ranker.forward`."""

    component: AbstractPoolLoss
    sizes_P: Sequence[int]
    with_none: bool

    def __call__(self, logits_B: Tensor, labels_B: Tensor) -> Tensor:
        return self.component.of_pools(self.sizes_P, with_none=self.with_none)(logits_B, labels_B)
