"""Conditioning a head's posterior on training pairs, after training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from icalib.core.seeding import child_seed
from icalib.encoders.transfer import forward_batches
from icalib.heads.head import PosteriorHead, Support
from icalib.models.precision import autocast, resolve_precision
from icalib.models.ranker import Ranker
from icalib.training.examples import Example
from icalib.training.loop import Engine
from icalib.training.pairs import AnswerCurriculum
from icalib.training.settings import TrainingSettings


class Conditioning:
    """Computes the posterior of a ranker's head from all training pairs or a support set, in evaluation mode.

    Each process handles a part of all pairs, but the whole of a support set, which is small. `seed` determines the
    support set and the random draws of the posterior.
    """

    def __init__(
        self, curriculum: AnswerCurriculum, settings: TrainingSettings, device: torch.device, seed: int
    ) -> None:
        self._curriculum, self._settings, self._device, self._seed = curriculum, settings, device, seed

    def complete(self, ranker: Ranker, rank: int = 0, world_size: int = 1) -> None:
        """Compute the whole posterior in this process; several workers share the forward passes."""
        if world_size > 1 and dist.is_initialized() and ranker.config.head.pairs_for_posterior is None:
            observed: list[Any] = [None] * world_size
            dist.all_gather_object(observed, self._observed(ranker, rank, world_size))
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
        head, support = _head(ranker), ranker.config.head.pairs_for_posterior
        examples = self._curriculum.pairs() if ranker.config.head.conditions_on_pairs else []
        if support is not None:
            examples = choose_support(examples, support, seed=child_seed(self._seed, "support"))
        precision = resolve_precision(self._settings.precision, self._device)
        lengths, max_tokens = [example.length for example in examples], self._settings.max_tokens_per_batch
        was_training = ranker.training
        ranker.eval()
        head.forget()
        for batch in forward_batches(lengths, max_tokens, self._device)[rank::world_size]:
            inputs, targets = self._curriculum.inputs([examples[int(index)] for index in batch], self._device)
            with torch.no_grad(), autocast(self._device, precision):
                ranker.observe(inputs, targets[:, 0])
        observed = head.observations()
        ranker.train(was_training)
        return observed


def _head(ranker: Ranker) -> PosteriorHead:
    head = ranker.posterior_head
    assert head is not None
    return head


def choose_support(examples: Sequence[Example], support: Support, *, seed: int) -> list[Example]:
    """Draw the support pairs of a posterior, right pairs first."""
    rng = np.random.default_rng(seed)
    shuffled = [examples[int(index)] for index in rng.permutation(len(examples))]
    right = [example for example in shuffled if example.labels.labels[example.position] == 1]
    wrong = [example for example in shuffled if example.labels.labels[example.position] == 0]
    fraction = support.positive_share
    size = int(min(support.size, len(right) / fraction, len(wrong) / (1 - fraction)))
    num_right = round(size * fraction)
    chosen = _from_other_contexts(right, set())[:num_right]
    return [*chosen, *_from_other_contexts(wrong, {e.labels.row for e in chosen})[: size - num_right]]


def _from_other_contexts(examples: Sequence[Example], taken: set[int]) -> list[Example]:
    """Order examples so that each context not in `taken` appears once before any repeats, for more information."""
    first: list[Example] = []
    rest: list[Example] = []
    seen = set(taken)
    for example in examples:
        (rest if example.labels.row in seen else first).append(example)
        seen.add(example.labels.row)
    return first + rest
