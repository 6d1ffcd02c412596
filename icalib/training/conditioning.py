"""From final weights to a posterior: which training pairs a head is shown, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from icalib.core.seeding import child_seed
from icalib.heads.head import PosteriorHead, Support
from icalib.models.precision import autocast, forward_batches, resolve_precision
from icalib.models.ranker import Ranker
from icalib.training.examples import Example
from icalib.training.loop import Engine
from icalib.training.pairs import AnswerCurriculum
from icalib.training.settings import TrainingSettings


class Conditioning:
    """Gives a ranker's head its posterior: every training pair, or a support set of them, in evaluation mode.

    A head that learns from every pair is shown a part of them by each process; a support set is small, so each
    process shows its head all of it, and all get the same posterior.

    Args:
        curriculum: the training pairs.
        settings: precision and batch size of the passes.
        device: where the ranker is.
        seed: decides the support set and the chains.
    """

    def __init__(
        self, curriculum: AnswerCurriculum, settings: TrainingSettings, device: torch.device, seed: int
    ) -> None:
        self._curriculum, self._settings, self._device, self._seed = curriculum, settings, device, seed

    def complete(self, ranker: Ranker) -> None:
        """Compute the whole posterior in this process, whatever the others do."""
        _head(ranker).condition([self._observed(ranker, 0, 1)], seed=child_seed(self._seed, "posterior"))

    def begin(self, ranker: Ranker, engine: Engine) -> None:
        """Compute the posterior together with the other workers, but for what the head splits into tasks."""
        if ranker.config.head.pairs_for_posterior is not None:
            shares = [self._observed(ranker, 0, 1)]
        else:
            shares = engine.gather(self._observed(ranker, engine.rank, engine.world_size))
        _head(ranker).collect(shares, seed=child_seed(self._seed, "posterior"))

    def _observed(self, ranker: Ranker, rank: int, world_size: int) -> dict[str, Tensor]:
        """What the head has taken in of every world-size-th batch."""
        head, support = _head(ranker), ranker.config.head.pairs_for_posterior
        passes = _Passes(ranker, self._curriculum, self._settings, self._device)
        examples = self._curriculum.pairs() if ranker.config.head.looks_at_pairs else []
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
    """Runs a ranker over examples in its precision, without gradients."""

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
        """The encoder's features [N, D]."""
        found: list[npt.NDArray[np.float32]] = [np.zeros(0, np.float32)] * len(examples)
        for batch in self.batches(examples):
            rows = self._run(
                lambda inputs, _: self._ranker.encoder(inputs).features_BD.float().cpu().numpy(),
                [examples[int(place)] for place in batch],
            )
            for place, row in zip(batch, rows, strict=True):
                found[int(place)] = row
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
    """The pairs that a posterior is computed from, as `support` asks, right ones first.

    Args:
        examples: the training pairs, in the order of the last epoch's batches.
        features: gives the features [N, D] of examples; only `per_class_kmeans` asks.
    """
    if support.choice == "last_batch":
        return list(examples[-support.size :])
    rng = np.random.default_rng(seed)
    shuffled = [examples[int(place)] for place in rng.permutation(len(examples))]
    right = [example for example in shuffled if example.labels.labels[example.place] == 1]
    wrong = [example for example in shuffled if example.labels.labels[example.place] == 0]
    share = support.positive_share
    size = int(min(support.size, len(right) / share, len(wrong) / (1 - share)))
    num_right = round(size * share)
    if support.choice == "per_class_kmeans":
        return [
            *_nearest_to_centroids(right, num_right, features, seed),
            *_nearest_to_centroids(wrong, size - num_right, features, seed),
        ]
    chosen = _from_other_contexts(right, set())[:num_right]
    return [*chosen, *_from_other_contexts(wrong, {e.labels.row for e in chosen})[: size - num_right]]


def _from_other_contexts(examples: Sequence[Example], taken: set[int]) -> list[Example]:
    """One example of each context that isn't taken, then the others: a support set of many contexts says more."""
    first: list[Example] = []
    rest: list[Example] = []
    seen = set(taken)
    for example in examples:
        (rest if example.labels.row in seen else first).append(example)
        seen.add(example.labels.row)
    return first + rest


def _nearest_to_centroids(
    examples: Sequence[Example],
    number: int,
    features: Callable[[Sequence[Example]], npt.NDArray[np.float32]],
    seed: int,
) -> list[Example]:
    """For each of `number` k-means centroids the nearest real pair, each pair once."""
    if len(examples) <= number:
        return list(examples)
    from sklearn.cluster import KMeans
    from sklearn.metrics import pairwise_distances_argmin

    known = features(examples)
    centroids = KMeans(number, random_state=seed % 2**31).fit(known).cluster_centers_
    return [examples[int(place)] for place in np.unique(pairwise_distances_argmin(centroids, known))]


def is_conditioned_on_support(ranker: Ranker) -> bool:
    """Whether the head needs its support pairs even for a point prediction."""
    return isinstance(ranker.answer_head, PosteriorHead) and ranker.config.head.pairs_for_posterior is not None
