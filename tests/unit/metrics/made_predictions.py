"""Predictions tables made of a few lists, for the tests of metrics."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from icalib.core.run_tables import PREDICTION_SCHEMA
from icalib.metrics.pairs import PoolScores

Pools = Sequence[Sequence[float]]


def prediction_table(logits: Pools, labels: Sequence[Sequence[int]], probs: Pools | None = None) -> pa.Table:
    """PREDICTION_SCHEMA of pools "pool-00000", "pool-00001" …; probabilities are σ(logit) unless given."""
    logit = np.concatenate([np.asarray(pool, float) for pool in logits])
    sizes = [len(pool) for pool in logits]
    num_pairs = len(logit)
    prob = 1 / (1 + np.exp(-logit)) if probs is None else np.concatenate([np.asarray(pool, float) for pool in probs])
    columns = {
        "pool_id": [f"pool-{index:05d}" for index, size in enumerate(sizes) for _ in range(size)],
        "candidate": [candidate for size in sizes for candidate in range(size)],
        "label": [label for pool in labels for label in pool],
        "view": ["plain"] * num_pairs,
        "logit": logit,
        "prob": prob,
        "logit_var": np.zeros(num_pairs),
        "prob_var": np.zeros(num_pairs),
        "mutual_information": np.zeros(num_pairs),
        "gain": np.full(num_pairs, np.nan),
        "num_passes": [1] * num_pairs,
    }
    return pa.table(columns, schema=PREDICTION_SCHEMA)


def pool_scores(logits: Pools, labels: Sequence[Sequence[int]], probs: Pools | None = None) -> PoolScores:
    """The same as PoolScores."""
    return PoolScores.from_predictions(prediction_table(logits, labels, probs))


def simulated_table(num_pools: int, *, seed: int, num_candidates: int = 10, decimals: int | None = None) -> pa.Table:
    """Pools with one right candidate, scored by a fair model; `decimals` rounds logits, which makes ties."""
    rng = np.random.default_rng(seed)
    labels = np.zeros((num_pools, num_candidates), int)
    labels[np.arange(num_pools), rng.integers(num_candidates, size=num_pools)] = 1
    logits = rng.normal(-2 + 2.5 * labels, 1.5)
    if decimals is not None:
        logits = logits.round(decimals)
    return prediction_table(logits.tolist(), labels.tolist())


@st.composite
def ragged_pools(draw: st.DrawFn, max_candidates: int = 5) -> tuple[list[list[float]], list[list[int]]]:
    """Logits with many ties and labels with one right candidate or more; pools of 1 to `max_candidates`."""
    sizes = draw(st.lists(st.integers(1, max_candidates), min_size=1, max_size=6))
    logits = [draw(st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0]), min_size=n, max_size=n)) for n in sizes]
    labels = [
        draw(st.lists(st.sampled_from([0, 1]), min_size=n, max_size=n).filter(lambda pool: 1 in pool)) for n in sizes
    ]
    return logits, labels
