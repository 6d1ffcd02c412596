"""Samples of scored pools: what a metric is computed from, for its value as for its bootstrap interval."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from icalib.metrics.calibration import BinSums
from icalib.metrics.classification import Decision
from icalib.metrics.pairs import FloatArray, IntArray, PoolScores
from icalib.metrics.ranking import top_candidate

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Scored pools, and how a run decides which candidates it calls right."""

    scores: PoolScores
    threshold: float = 0.5
    decision: Decision = "threshold"
    _computed: dict[Hashable, Any] = field(default_factory=dict[Hashable, Any], init=False, repr=False)

    def once(self, function: Callable[Concatenate[PoolScores, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return `function(scores, ...)`, computed on the first call only: a bootstrap asks for it in every chunk."""
        key = function, args, tuple(kwargs.items())
        if key not in self._computed:
            self._computed[key] = function(self.scores, *args, **kwargs)
        return self._computed[key]

    def samples(self, drawn: IntArray) -> PoolSamples:
        """Return the samples with the given pools, [R, B] indices."""
        return PoolSamples(self, drawn)

    def everything(self) -> PoolSamples:
        """Return the one sample that holds every pool once."""
        return self.samples(np.arange(self.scores.num_pools)[np.newaxis])


@dataclass(frozen=True, eq=False)
class PoolSamples:
    """R samples, drawn with replacement, of the B pools of an evaluation.

    Sums over pools are matrix products, so that a thousand resamples take about as long as a few.

    Attributes:
        evaluation: the pools and the decision rule.
        drawn: [R, B] indices of pools.
    """

    evaluation: Evaluation
    drawn: IntArray

    @property
    def scores(self) -> PoolScores:
        """The pools that the samples are drawn from."""
        return self.evaluation.scores

    @cached_property
    def times(self) -> FloatArray:
        """How often each sample holds each pool, [R, B]."""
        num_samples, num_pools = self.drawn.shape
        cell = self.drawn + np.arange(num_samples)[:, np.newaxis] * num_pools
        counts = np.bincount(cell.ravel(), minlength=self.drawn.size)
        return counts.reshape(self.drawn.shape).astype(np.float64)

    @cached_property
    def num_pools(self) -> FloatArray:
        """Pools of each sample, [R]."""
        return self.times.sum(axis=1)

    def sum(
        self, per_pool: Callable[Concatenate[PoolScores, P], FloatArray], *args: P.args, **kwargs: P.kwargs
    ) -> FloatArray:
        """Return the sums over each sample of the values [B] that a function gives the pools, [R]."""
        return self.times @ self.evaluation.once(per_pool, *args, **kwargs)

    def mean(
        self, per_pool: Callable[Concatenate[PoolScores, P], FloatArray], *args: P.args, **kwargs: P.kwargs
    ) -> FloatArray:
        """Return the means over each sample of the values [B] that a function gives the pools, [R].

        NaN marks pools for which the value is not defined; they don't count.
        """
        values = self.evaluation.once(per_pool, *args, **kwargs)
        defined = ~np.isnan(values)
        if defined.all():
            return self.times @ values / self.num_pools
        num_defined = self.times @ defined
        total = self.times @ np.where(defined, values, 0.0)
        return np.divide(total, num_defined, out=np.full(num_defined.shape, np.nan), where=num_defined > 0)

    def bins(self, per_pool: Callable[[PoolScores], BinSums]) -> BinSums:
        """Return the bins [R, M] of each sample from those of the pools [B, M]."""
        return BinSums(*(self.times @ sums for sums in self.evaluation.once(per_pool)))

    @cached_property
    def top(self) -> tuple[FloatArray, FloatArray]:
        """Confidence in the pools' first candidates and their errors, [R, B] each, most confident pools first."""
        top = self.evaluation.once(top_candidate)
        by_confidence = self.evaluation.once(_by_confidence)
        rank = self.evaluation.once(_confidence_rank)
        # sorting ranks here makes the sort by confidence, which every selective metric needs, a single pass
        drawn = by_confidence[np.sort(rank[self.drawn], axis=1)]
        return top.prob[drawn], 1 - top.hit[drawn]


def _by_confidence(scores: PoolScores) -> IntArray:
    return np.argsort(-top_candidate(scores).prob, kind="stable")


def _confidence_rank(scores: PoolScores) -> IntArray:
    return np.argsort(_by_confidence(scores))
