"""All metrics of a predictions table at once, with bootstrap intervals over pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from icalib.core.run_tables import METRIC_SCHEMA
from icalib.metrics.catalogue import find_metric, known_metrics
from icalib.metrics.classification import Decision
from icalib.metrics.metric import Evaluation, Metric
from icalib.metrics.pairs import FloatArray, IntArray, PoolScores
from icalib.metrics.significance import Interval, basic_interval, bootstrap, percentile_interval

_SUMMARY_SCHEMA = METRIC_SCHEMA.remove(METRIC_SCHEMA.get_field_index("split"))


def summarise(
    predictions: pa.Table,
    *,
    threshold: float,
    seed: int,
    decision: Decision = "threshold",
    also: Sequence[str] = (),
    num_bootstrap: int = 1000,
) -> pa.Table:
    """Return METRIC_SCHEMA without `split`: one row for each known metric in order, then one for each of `also`.

    Metrics that don't apply to these pools are left out.

    Args:
        predictions: PREDICTION_SCHEMA; pools of unknown label don't count.
        threshold: decision threshold for P, R and F1, fitted on validation.
        seed: root seed of the bootstrap.
        decision: whether P, R and F1 are at the threshold or by argmax, in expectation over ties.
        also: import paths of further metrics.
        num_bootstrap: resamples of the pools behind the 95 % intervals.

    Raises:
        DataError: see `PoolScores.from_predictions`.
        SettingError: see `find_metric`.
    """
    evaluation = Evaluation(PoolScores.from_predictions(predictions), threshold, decision)
    known = {**known_metrics(), **{reference: find_metric(reference) for reference in also}}
    metrics = {
        name: metric for name, metric in known.items() if metric.applies is None or metric.applies(evaluation.scores)
    }

    rows = [
        (name, value, interval.low, interval.high)
        for name, (value, interval) in measure(evaluation, metrics, seed=seed, num_bootstrap=num_bootstrap).items()
    ]
    return pa.table(list(zip(*rows, strict=True)), schema=_SUMMARY_SCHEMA)


def measure(
    evaluation: Evaluation, metrics: Mapping[str, Metric], *, seed: int, num_bootstrap: int = 1000
) -> dict[str, tuple[float, Interval]]:
    """Return the value of each metric with its 95 % bootstrap interval over pools."""

    def statistics(drawn: IntArray) -> dict[str, FloatArray]:
        samples = evaluation.samples(drawn)
        return {name: metric.of(samples) for name, metric in metrics.items() if metric.has_interval}

    resampled = bootstrap(statistics, evaluation.scores.num_pools, seed=seed, num_bootstrap=num_bootstrap)
    found: dict[str, tuple[float, Interval]] = {}
    for name, metric in metrics.items():
        value, values = metric.value(evaluation), resampled.get(name, np.zeros(0))
        interval = basic_interval(values, value, bounds=metric.bounds) if metric.biased else percentile_interval(values)
        found[name] = value, interval
    return found
