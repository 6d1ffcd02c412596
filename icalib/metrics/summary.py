"""Metrics of a predictions table with bootstrap intervals over pools, and those by which models are chosen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pyarrow as pa

from icalib.core.run_tables import METRIC_SCHEMA
from icalib.metrics.catalogue import find_metric, known_metrics
from icalib.metrics.classification import Decision, fit_threshold
from icalib.metrics.metric import Evaluation, Metric
from icalib.metrics.pairs import FloatArray, IntArray, PoolScores
from icalib.metrics.significance import Interval, bootstrap, gap_interval, mean_interval, percentile_interval

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
    """Return METRIC_SCHEMA without `split`: one row for each known metric in order, then for the import paths `also`.

    Metrics that don't apply to these pools are left out, and pools of unknown label don't count. P, R and F1 are at the
    `threshold` or by argmax, as `decision` says; intervals are those of `measure`. Errors are those of
    `PoolScores.from_predictions` and `find_metric`.
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
    """Return the value of each metric with its 95 % interval over pools: of fractions Wilson's, else a bootstrap's."""
    resampled = {name: metric for name, metric in metrics.items() if metric.has_interval and not metric.is_fraction}

    def statistics(drawn: IntArray) -> dict[str, FloatArray]:
        samples = evaluation.samples(drawn)
        return {name: metric.of(samples) for name, metric in resampled.items()}

    drawn = bootstrap(statistics, evaluation.scores.num_pools, seed=seed, num_bootstrap=num_bootstrap)
    return {
        name: (value, _interval(metric, evaluation, value, drawn.get(name, np.zeros(0))))
        for name, metric in metrics.items()
        for value in (metric.value(evaluation),)
    }


def _interval(metric: Metric, evaluation: Evaluation, value: float, drawn: FloatArray) -> Interval:
    if metric.is_fraction:
        assert metric.per_pool is not None
        return mean_interval(evaluation.once(metric.per_pool))
    return gap_interval(drawn, value, bounds=metric.bounds) if metric.biased else percentile_interval(drawn)


def measured(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return the metrics of a table by name, without those that have no value, for which JSON has no number."""
    return {row["metric"]: row["value"] for row in rows if isfinite(row["value"])}


def over_seeds(results: Sequence[Mapping[str, Any]], split: str, metric: str) -> tuple[float | None, float | None]:
    """Return a metric's mean and sample standard deviation over runs; None where a run has no value.

    A mean of the others would be called one of all seeds. Of one run there is no deviation.
    """
    values = [value for result in results if (value := result[split].get(metric)) is not None and isfinite(value)]
    if not values or len(values) < len(results):
        return None, None
    return fmean(values), stdev(values) if len(values) > 1 else None


def answer_metrics(scores: PoolScores, *, by_argmax: bool = False, loss: float | None = None) -> dict[str, float]:
    """Compute F1, R@1, MAP, ECE and NLL by tag; R@1 and MAP are of the pools with a right candidate.

    F1 is by argmax, or above the threshold that suits the same pools best; `loss` is NLL, where it is known more
    exactly than from probabilities.
    """
    threshold = 0.5 if by_argmax else fit_threshold(scores.prob, scores.label)
    evaluation = Evaluation(scores, threshold, "argmax" if by_argmax else "threshold")
    found = {metric.tag: metric.value(evaluation) for metric in map(find_metric, ("F1", "R@1", "MAP", "ECE", "NLL"))}
    return found if loss is None else {**found, find_metric("NLL").tag: loss}
