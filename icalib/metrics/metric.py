"""A metric as a value: all that tables, charts, sweeps and paired tests need to know about it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, final

from icalib.core.errors import SettingError
from icalib.metrics.pairs import FloatArray, PoolScores
from icalib.metrics.samples import Evaluation, PoolSamples

Direction = Literal["maximize", "minimize"]


@final
@dataclass(frozen=True)
class Metric:
    """One measure of scored pools.

    A metric that is a mean over pools needs `per_pool` only, with NaN for pools that don't count; any other has a
    `function` of samples of pools, whose helpers keep the bootstrap fast. With both, `per_pool` is what paired tests
    compare.

    Args:
        name: as metrics.parquet and tables print it.
        group: what it is about; `group/name` is its TensorBoard tag.
        direction: whether larger or smaller values are better; None where neither is.
        description: one line for readers of a report.
        function: its values on R samples of pools, [R].
        per_pool: its value on each of B pools, [B].
        heading: column heading of HTML reports; empty takes the name.
        has_interval: whether a bootstrap interval says anything about it.
        biased: whether its values on small samples are larger on average, as those of absolute gaps are. Its interval
            is then the basic one, which corrects for that, instead of percentiles.
        bounds: its smallest and largest possible value; a basic interval is clipped to them.
        applies: which pools it says something about; tables of others leave it out. None: any.

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
    direction: Direction | None
    description: str
    function: Callable[[PoolSamples], FloatArray] | None = None
    per_pool: Callable[[PoolScores], FloatArray] | None = None
    heading: str = ""
    has_interval: bool = True
    biased: bool = False
    bounds: tuple[float, float] = (-math.inf, math.inf)
    applies: Callable[[PoolScores], bool] | None = None

    def __post_init__(self) -> None:
        if self.function is None and self.per_pool is None:
            raise SettingError(f"the metric {self.name!r} has no function; give it `per_pool` or `function`.")
        if self.direction not in ("maximize", "minimize", None):
            raise SettingError(
                f'the metric {self.name!r} has the direction {self.direction!r}; expected "maximize", "minimize" or '
                "None."
            )

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
        """Return its values on samples of pools, [R]."""
        if self.function is not None:
            return self.function(samples)
        assert self.per_pool is not None  # checked at construction
        return samples.mean(self.per_pool)

    def value(self, scores: PoolScores | Evaluation) -> float:
        """Return its value on scored pools; without an `Evaluation` the decision threshold is 0.5."""
        evaluation = Evaluation(scores) if isinstance(scores, PoolScores) else scores
        return float(self.of(evaluation.everything())[0])
