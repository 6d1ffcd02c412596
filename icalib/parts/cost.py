"""Inference cost of several models: size and scoring time, measured together.

Measurements use one process and one thread. In every round, each model scores the same pools in turn, so that other
load on the machine affects all models equally; ratios are taken within a round.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from icalib.data.encoding import TokenStore
from icalib.data.schema import Pool
from icalib.models.threads import num_threads
from icalib.parts.loaded import LoadedMembers


@dataclass(frozen=True)
class Cost:
    """Size and scoring time of one method, summed over its models."""

    label: str
    num_parameters: int
    """Number of trained parameters."""
    num_fixed: int
    """Number of other values: the frozen backbone, random features, the posterior and its support set."""
    num_pairs: int
    seconds: float
    """Seconds to score all pairs, median over the rounds."""
    ratio: float
    """Seconds divided by those of the first method, median over the rounds."""
    ratio_low: float
    ratio_high: float

    @property
    def milliseconds_per_pair(self) -> float:
        """Milliseconds per pair."""
        return 1000 * self.seconds / self.num_pairs


def measure_costs(methods: Sequence[tuple[str, LoadedMembers]], pools: Sequence[Pool], *, repeats: int) -> list[Cost]:
    """Measure the scoring of pools, including all passes, views and members, and the prediction of intents.

    Args:
        methods: labels and models; the others are compared with the first.
        pools: the pools to score; every method scores all of them.
    """
    with tempfile.TemporaryDirectory() as folder, num_threads(1):
        tokenized = [
            (members, members.tokenize(pools, Path(folder) / f"{index}.arrow"))
            for index, (_, members) in enumerate(methods)
        ]
        rounds = [[_seconds(members, store) for members, store in tokenized] for _ in range(repeats + 1)][1:]
    num_pairs = sum(len(pool.candidates) for pool in pools)
    return [
        _cost(label, members, num_pairs, [times[index] for times in rounds], [times[0] for times in rounds])
        for index, (label, members) in enumerate(methods)
    ]


def _seconds(members: LoadedMembers, store: TokenStore) -> float:
    started = time.perf_counter()
    members.score(store, range(len(store)), seed=0)  # returns the scores on the CPU, and thus synchronises with a GPU
    return time.perf_counter() - started


def _cost(
    label: str, members: LoadedMembers, num_pairs: int, seconds: Sequence[float], reference: Sequence[float]
) -> Cost:
    ratios = [own / other for own, other in zip(seconds, reference, strict=True)]
    return Cost(
        label=label,
        num_parameters=members.num_parameters,
        num_fixed=members.num_fixed,
        num_pairs=num_pairs,
        seconds=statistics.median(seconds),
        ratio=statistics.median(ratios),
        ratio_low=min(ratios),
        ratio_high=max(ratios),
    )
