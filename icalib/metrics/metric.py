"""A metric as a value: all that tables, charts, sweeps and paired tests need to know about it.

It is computed from samples of scored pools, for its value as for its bootstrap interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeVar, final

import numpy as np

from icalib.core.errors import SettingError
from icalib.core.imports import failed
from icalib.metrics.calibration import BinSums
from icalib.metrics.classification import Decision
from icalib.metrics.pairs import FloatArray, IntArray, PoolScores, ratio
from icalib.metrics.selective import Blocks, RankedPools

Direction = Literal["maximize", "minimize"]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Scored pools, and how a run decides which candidates it calls right."""

    scores: PoolScores
    threshold: float = 0.5
    decision: Decision = "threshold"
    _computed: dict[Callable[..., Any], Any] = field(
        default_factory=dict[Callable[..., Any], Any], init=False, repr=False
    )

    def once(self, function: Callable[[PoolScores], T]) -> T:
        """Return `function(scores)`, computed on the first call only: a bootstrap asks for it in every chunk."""
        if function not in self._computed:
            self._computed[function] = function(self.scores)
        return self._computed[function]

    @cached_property
    def called(self) -> tuple[FloatArray, FloatArray]:
        """Pairs of each pool above the threshold, and the right ones among them, [B] each."""
        called = self.scores.prob > self.threshold
        return self.scores.pool_sum(called), self.scores.pool_sum(called & (self.scores.label == 1))

    def samples(self, drawn: IntArray) -> PoolSamples:
        """Return the samples with the given pools, [R, B] indices."""
        num_samples, num_pools = drawn.shape
        cell = drawn + np.arange(num_samples)[:, np.newaxis] * num_pools
        counts = np.bincount(cell.ravel(), minlength=drawn.size)
        return PoolSamples(self, counts.reshape(drawn.shape).astype(np.float64))


@dataclass(frozen=True, eq=False)
class PoolSamples:
    """R samples, drawn with replacement, of the B pools of an evaluation; `times` has how often each holds each pool.

    Sums over pools are matrix products, so that a thousand resamples take about as long as a few.
    """

    evaluation: Evaluation
    times: FloatArray  # [R, B]

    @cached_property
    def num_pools(self) -> FloatArray:
        """Pools of each sample, [R]."""
        return self.times.sum(axis=1)

    def sum(self, per_pool: Callable[[PoolScores], FloatArray | IntArray]) -> FloatArray:
        """Return the sums over each sample of the values [B] that a function gives the pools, [R]."""
        return self.times @ self.evaluation.once(per_pool)

    def mean(self, per_pool: Callable[[PoolScores], FloatArray]) -> FloatArray:
        """Return the means over each sample of such values, [R]; NaN marks pools that don't count."""
        values = self.evaluation.once(per_pool)
        defined = ~np.isnan(values)
        if defined.all():
            return self.times @ values / self.num_pools
        num_defined = self.times @ defined
        total = self.times @ np.where(defined, values, 0.0)
        return ratio(total, num_defined, np.nan)

    def bins(self, per_pool: Callable[[PoolScores], BinSums]) -> BinSums:
        """Return the bins [R, M] of each sample from those of the pools [B, M]."""
        return BinSums(*(self.times @ sums for sums in self.evaluation.once(per_pool)))

    def blocks(self, ranked: Callable[[PoolScores], RankedPools]) -> Blocks:
        """Return how many pools and errors each sample has in each block of equally confident pools, [R, K] each."""
        return self.evaluation.once(ranked).blocks(self.times)


@final
@dataclass(frozen=True)
class Metric:
    """One measure of scored pools.

    A metric that is a mean over pools needs `per_pool` only: its value on each of B pools, [B], NaN for those that
    don't count. Any other has a `function`: its values on R samples of pools, [R], whose helpers keep the bootstrap
    fast. With both, `per_pool` is what paired tests compare.

    Example:
        >>> import numpy as np
        >>> scores = PoolScores.from_lists([[2.0, 1.0], [0.5, 0.1, 0.9], [0.0, 3.0]], [[1, 0], [1, 0, 0], [0, 1]])
        >>> def first_is_right(scores: PoolScores) -> FloatArray:
        ...     pools = zip(scores.split(scores.logit), scores.split(scores.label), strict=True)
        ...     return np.array([label[logit.argmax()] for logit, label in pools], float)
        >>> hits = Metric("hits", "rank", "maximize", "fraction of hits", per_pool=first_is_right)
        >>> hits.tag, round(hits.value(scores), 3)
        ('rank/hits', 0.667)
        >>> pairs = Metric("pairs", "data", None, "pairs in all", lambda samples: samples.sum(PoolScores.sizes))
        >>> pairs.value(scores)
        7.0
    """

    name: str
    group: str
    """What it is about; `group/name` is its TensorBoard tag."""
    direction: Direction | None
    description: str
    """One line for readers of a report."""
    function: Callable[[PoolSamples], FloatArray] | None = None
    per_pool: Callable[[PoolScores], FloatArray] | None = None
    heading: str = ""
    """Column heading of HTML reports; empty takes the name."""
    has_interval: bool = True
    biased: bool = False
    """Larger on average on small samples, as absolute gaps are: its interval is `gap_interval`, within `bounds`."""
    bounds: tuple[float, float] = (-math.inf, math.inf)
    applies: Callable[[PoolScores], bool] | None = None
    """Which pools it says something about; tables of others leave it out. None: any."""

    def __post_init__(self) -> None:
        if self.function is None and self.per_pool is None:
            raise SettingError(f"the metric {self.name!r} has no function; give it `per_pool` or `function`.")
        if self.direction not in ("maximize", "minimize", None):
            raise SettingError(
                f'the metric {self.name!r} has the direction {self.direction!r}; expected "maximize", "minimize" or '
                "None."
            )

    @property
    def is_fraction(self) -> bool:
        """Whether it is a mean over pools of values from 0 to 1, as those with such `bounds` are."""
        return self.function is None and self.has_interval and self.bounds == (0, 1)

    @property
    def tag(self) -> str:
        """Its TensorBoard tag, the same during training and at the end."""
        return f"{self.group}/{self.name}"

    @property
    def title(self) -> str:
        """Its column heading in HTML reports."""
        return self.heading or self.name

    @property
    def sign(self) -> int:
        """−1 where smaller values are better, else 1: `sign * value` is larger for better models."""
        return -1 if self.direction == "minimize" else 1

    def of(self, samples: PoolSamples) -> FloatArray:
        """Return its values on samples of pools, [R]; a SettingError names a metric that fails, or returns others."""
        try:
            found = np.asarray(self._values(samples), np.float64)
        except MemoryError:
            raise
        except (Exception, SystemExit) as error:
            raise failed(f"the metric {self.name!r}", error) from error
        if found.shape != samples.times.shape[:1]:
            raise self._unfit(f"values of shape {found.shape}", samples)
        return found

    def _values(self, samples: PoolSamples) -> FloatArray:
        if self.function is not None:
            return self.function(samples)
        assert self.per_pool is not None  # checked at construction
        found = np.asarray(samples.evaluation.once(self.per_pool))
        if found.shape != (samples.evaluation.scores.num_pools,) or found.dtype.kind not in "fiub":
            raise self._unfit(f"values of shape {found.shape}, {found.dtype}", samples)
        return samples.mean(self.per_pool)

    def _unfit(self, found: str, samples: PoolSamples) -> SettingError:
        return SettingError(
            f"the metric {self.name!r} returned {found}; expected a number for each of {len(samples.times)} samples "
            f"from `function`, or for each of {samples.evaluation.scores.num_pools} pools from `per_pool`."
        )

    def value(self, scores: PoolScores | Evaluation) -> float:
        """Return its value on scored pools; without an `Evaluation` the decision threshold is 0.5."""
        evaluation = Evaluation(scores) if isinstance(scores, PoolScores) else scores
        every_pool_once = evaluation.samples(np.arange(evaluation.scores.num_pools)[np.newaxis])
        return float(self.of(every_pool_once)[0])
