"""Conditioning a head's posterior on training pairs, after training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor

from icalib.core.seeding import child_seed
from icalib.encoders.forward_batches import forward_batches
from icalib.heads.head import PosteriorHead, Support
from icalib.models.precision import autocast, resolve_precision
from icalib.models.ranker import Ranker
from icalib.training.examples import Example
from icalib.training.loop import Engine
from icalib.training.pairs import AnswerCurriculum
from icalib.training.settings import TrainingSettings


class Conditioning:
    """Computes the posterior of a ranker's head from all training pairs or a support set, in evaluation mode.

    If the posterior depends on every pair, each process handles a part of them. A support set is small, so each process
    handles all of it, and all processes get the same posterior.

    Args:
        seed: determines the support set and the random draws of the posterior.
    """

    def __init__(
        self, curriculum: AnswerCurriculum, settings: TrainingSettings, device: torch.device, seed: int
    ) -> None:
        self._curriculum, self._settings, self._device, self._seed = curriculum, settings, device, seed

    def complete(self, ranker: Ranker, rank: int = 0, world_size: int = 1) -> None:
        """Compute the whole posterior in this process.

        With several workers, all call it, and each runs the forward passes of a part of the pairs.
        """
        shared = world_size > 1 and dist.is_initialized() and ranker.config.head.pairs_for_posterior is None
        if shared:
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
        _head(ranker).collect(observed, seed=child_seed(self._seed, "posterior"))

    def _observed(self, ranker: Ranker, rank: int, world_size: int) -> dict[str, Tensor]:
        """Let the head observe every world-size-th batch, and return its observations."""
        head, support = _head(ranker), ranker.config.head.pairs_for_posterior
        passes = _Passes(ranker, self._curriculum, self._settings, self._device)
        last = self._settings.epochs - 1 if support is not None and support.choice == "last_batch" else 0
        examples = self._curriculum.pairs(last) if ranker.config.head.looks_at_pairs else []
        if support is not None:
            examples = choose_support(examples, support, passes.features, seed=child_seed(self._seed, "support"))
        was_training = ranker.training
        ranker.eval()
        head.forget()
        for batch in passes.batches(examples)[rank::world_size]:
            passes.observe([examples[int(index)] for index in batch])
        observed = head.observations()
        ranker.train(was_training)
        return observed


def _head(ranker: Ranker) -> PosteriorHead:
    head = ranker.posterior_head
    assert head is not None
    return head


class _Passes:
    """Runs forward passes of a ranker over examples, without gradients."""

    def __init__(
        self, ranker: Ranker, curriculum: AnswerCurriculum, settings: TrainingSettings, device: torch.device
    ) -> None:
        self._ranker, self._curriculum, self._device = ranker, curriculum, device
        self._precision: Any = resolve_precision(settings.precision, device)
        self._max_tokens = settings.max_tokens_per_batch

    def batches(self, examples: Sequence[Example]) -> list[npt.NDArray[np.int64]]:
        return forward_batches([example.length for example in examples], self._max_tokens, self._device)

    def observe(self, examples: Sequence[Example]) -> None:
        self._run(self._ranker.observe, examples)

    def features(self, examples: Sequence[Example]) -> npt.NDArray[np.float32]:
        """Compute the encoder's features [N, D]."""
        found: list[npt.NDArray[np.float32]] = [np.zeros(0, np.float32)] * len(examples)
        for batch in self.batches(examples):
            rows = self._run(
                lambda inputs, _: self._ranker.encoder(inputs).features_BD.float().cpu().numpy(),
                [examples[int(index)] for index in batch],
            )
            for index, row in zip(batch, rows, strict=True):
                found[int(index)] = row
        return np.stack(found)

    def _run(self, function: Callable[..., Any], examples: Sequence[Example]) -> Any:
        inputs, targets = self._curriculum.inputs(examples, self._device)
        with torch.no_grad(), autocast(self._device, self._precision):
            return function(inputs, targets[:, 0])


def choose_support(
    examples: Sequence[Example],
    support: Support,
    features: Callable[[Sequence[Example]], npt.NDArray[np.float32]],
    *,
    seed: int,
) -> list[Example]:
    """Choose the support pairs of a posterior, right pairs first.

    Args:
        examples: the training pairs, in the order of the last epoch's batches.
        features: computes the features [N, D] of examples; only used by `per_class_kmeans`.
    """
    if support.choice == "last_batch":
        return list(examples[-support.size :])
    rng = np.random.default_rng(seed)
    shuffled = [examples[int(index)] for index in rng.permutation(len(examples))]
    right = [example for example in shuffled if example.labels.labels[example.position] == 1]
    wrong = [example for example in shuffled if example.labels.labels[example.position] == 0]
    fraction = support.positive_share
    size = int(min(support.size, len(right) / fraction, len(wrong) / (1 - fraction)))
    num_right = round(size * fraction)
    if support.choice == "per_class_kmeans":
        return [
            *_nearest_to_centroids(right, num_right, features, seed),
            *_nearest_to_centroids(wrong, size - num_right, features, seed),
        ]
    chosen = _from_other_contexts(right, set())[:num_right]
    return [*chosen, *_from_other_contexts(wrong, {e.labels.row for e in chosen})[: size - num_right]]


def _from_other_contexts(examples: Sequence[Example], taken: set[int]) -> list[Example]:
    """Order examples so that each context that isn't in `taken` appears once before any repeats.

    A support set of many contexts is more informative.
    """
    first: list[Example] = []
    rest: list[Example] = []
    seen = set(taken)
    for example in examples:
        (rest if example.labels.row in seen else first).append(example)
        seen.add(example.labels.row)
    return first + rest


def _nearest_to_centroids(
    examples: Sequence[Example],
    num_centroids: int,
    features: Callable[[Sequence[Example]], npt.NDArray[np.float32]],
    seed: int,
) -> list[Example]:
    """Return the examples nearest to each of `num_centroids` k-means centroids.

    Where features repeat, there are fewer centroids or several with the same nearest example; the first other examples
    take the missing ones' place, so that the fraction of right pairs is the one asked for.
    """
    if len(examples) <= num_centroids:
        return list(examples)
    from sklearn.cluster import KMeans
    from sklearn.metrics import pairwise_distances_argmin

    known = features(examples)
    num_clusters = min(num_centroids, len(np.unique(known, axis=0)))
    centroids = KMeans(num_clusters, random_state=seed % 2**31).fit(known).cluster_centers_
    nearest = np.unique(pairwise_distances_argmin(centroids, known))
    others = np.setdiff1d(np.arange(len(examples)), nearest)[: num_centroids - len(nearest)]
    return [examples[int(index)] for index in (*nearest, *others)]
