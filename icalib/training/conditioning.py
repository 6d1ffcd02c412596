"""Conditioning a head's posterior on training pairs, after training."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor

from icalib.core.seeding import child_seed
from icalib.data.encoding import Numbers
from icalib.encoders.transfer import forward_batches
from icalib.heads.head import PosteriorHead, Support
from icalib.models.precision import autocast
from icalib.models.ranker import Ranker
from icalib.training.epochs import Examples
from icalib.training.gather import gather
from icalib.training.loop import Engine
from icalib.training.pairs import AnswerCurriculum
from icalib.training.settings import TrainingSettings


class Conditioning:
    """Computes the posterior of a ranker's head from all training pairs or a support set, in evaluation mode.

    Each process handles a part of all pairs, but the whole of a support set, which is small.

    Args:
        seed: determines the support set and all other random draws.
        max_pairs: of a posterior without a support set; if there are more, those drawn stand for the others, too.
    """

    def __init__(
        self,
        curriculum: AnswerCurriculum,
        settings: TrainingSettings,
        device: torch.device,
        seed: int,
        *,
        max_pairs: int | None = None,
    ) -> None:
        self._curriculum, self._settings, self._device, self._seed = curriculum, settings, device, seed
        self._max_pairs = max_pairs

    def complete(self, ranker: Ranker, rank: int = 0, world_size: int = 1) -> None:
        """Compute the whole posterior in this process; several workers share the forward passes."""
        if world_size > 1 and dist.is_initialized() and ranker.config.head.pairs_for_posterior is None:
            observed = gather(self._observed(ranker, rank, world_size), self._device)
        else:
            observed = [self._observed(ranker, 0, 1)]
        _head(ranker).condition(observed, seed=child_seed(self._seed, "posterior"))

    def begin(self, ranker: Ranker, engine: Engine) -> None:
        """Compute the posterior together with the other workers, except for what the head splits into tasks."""
        if ranker.config.head.pairs_for_posterior is not None:
            observed = [self._observed(ranker, 0, 1)]
        else:
            observed = engine.gather(self._observed(ranker, engine.rank, engine.world_size))
        _head(ranker).collect(observed)

    def _observed(self, ranker: Ranker, rank: int, world_size: int) -> dict[str, Tensor]:
        head, was_training = _head(ranker), ranker.training
        ranker.eval()
        head.forget()
        stands_for = 1.0
        if ranker.config.head.conditions_on_pairs:
            pairs, stands_for = self._pairs(ranker.config.head.pairs_for_posterior)
            self._observe(ranker, pairs, rank, world_size)
        observed = head.observations()
        ranker.train(was_training)
        return observed if stands_for == 1 else {name: sums * stands_for for name, sums in observed.items()}

    def _observe(self, ranker: Ranker, pairs: Examples, rank: int, world_size: int) -> None:
        max_tokens = self._settings.max_tokens_per_batch
        for batch in forward_batches(pairs.length_M.tolist(), max_tokens, self._device)[rank::world_size]:
            inputs, targets = self._curriculum.inputs([pairs.example(index) for index in batch.tolist()], self._device)
            with torch.no_grad(), autocast(self._device, self._settings.precision):
                ranker.observe(inputs, targets[:, 0])

    def _pairs(self, support: Support | None) -> tuple[Examples, float]:
        """Return the pairs to observe, and how many pairs each of them stands for."""
        pairs = self._curriculum.pairs()
        if support is not None:
            labels = pairs.labels(np.arange(len(pairs)))
            return pairs.take(choose_support(pairs.rows_M, labels, support, seed=child_seed(self._seed, "support"))), 1
        if self._max_pairs is None or len(pairs) <= self._max_pairs:
            return pairs, 1
        rng = np.random.default_rng(child_seed(self._seed, "pairs"))
        drawn = rng.choice(len(pairs), self._max_pairs, replace=False)
        return pairs.take(drawn), len(pairs) / len(drawn)


def _head(ranker: Ranker) -> PosteriorHead:
    head = ranker.posterior_head
    assert head is not None
    return head


def choose_support(rows_M: Numbers, labels_M: npt.NDArray[Any], support: Support, *, seed: int) -> Numbers:
    """Draw the support of a posterior among M pairs; return their indices [S], right pairs first.

    `rows_M` are those of the pairs' pools.
    """
    shuffled = np.random.default_rng(seed).permutation(len(rows_M))
    right, wrong = (shuffled[labels_M[shuffled] == label] for label in (1, 0))
    fraction = support.positive_share
    size = int(min(support.size, len(right) / fraction, len(wrong) / (1 - fraction)))
    num_right = round(size * fraction)
    if len(right) and len(wrong):  # one class alone would say that all pairs are of it
        size = max(size, 2)
        num_right = min(max(num_right, 1), size - 1)
    chosen = right[_from_other_contexts(rows_M[right], np.zeros(0, np.int64))[:num_right]]
    others = wrong[_from_other_contexts(rows_M[wrong], rows_M[chosen])[: size - num_right]]
    return np.concatenate([chosen, others])


def _from_other_contexts(rows_M: Numbers, taken: Numbers) -> Numbers:
    """Order pairs so that each context not in `taken` appears once before any repeats, for more information."""
    _, first = np.unique(rows_M, return_index=True)
    repeats = np.ones(len(rows_M), np.bool_)
    repeats[first] = np.isin(rows_M[first], taken)
    return np.argsort(repeats, kind="stable")
