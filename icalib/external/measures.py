"""What a calibrator of another ranker's scores is like on the report half of the pools."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from icalib.external.calibrator import Acceptance, AnswerSets
from icalib.metrics.calibration import wilson_interval
from icalib.metrics.catalogue import find_metric
from icalib.metrics.pairs import FloatArray, IntArray, PoolScores
from icalib.metrics.ranking import top_candidate
from icalib.metrics.samples import Evaluation
from icalib.metrics.significance import basic_interval, bootstrap, paired_permutation_test, percentile_interval

METRICS = ("NLL", "ECE", "Brier")
RANKING = "R@1"


@dataclass(frozen=True)
class Measured:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Row:
    """A calibrator's metrics.

    Attributes:
        name: the calibrator's.
        metrics: NLL, ECE and Brier score over all pairs; R@1 over the pools with a right candidate, ranked by the
            probabilities: what a calibrator makes equal counts as a tie.
    """

    name: str
    metrics: Mapping[str, Measured]


def measured(name: str, pools: PoolScores, before: PoolScores, seed: int) -> Row:
    """Return a calibrator's metrics on pools with its probabilities."""
    evaluation = Evaluation(pools)
    metrics = {metric: find_metric(metric) for metric in METRICS}

    def statistics(drawn: IntArray) -> dict[str, FloatArray]:
        samples = evaluation.samples(drawn)
        return {key: metric.of(samples) for key, metric in metrics.items()}

    resampled = bootstrap(statistics, pools.num_pools, seed=seed)
    found: dict[str, Measured] = {}
    for key, metric in metrics.items():
        value, values = metric.value(evaluation), resampled[key]
        ends = basic_interval(values, value, bounds=metric.bounds) if metric.biased else percentile_interval(values)
        found[key] = Measured(value, *ends)
    return Row(name, {**found, RANKING: _ranked(pools, before is pools)})


def nll_p_value(pools: PoolScores, before: PoolScores, seed: int) -> float:
    """Return the p-value of the paired permutation test that the NLL of the pools is the same as before."""
    of_pool = find_metric("NLL").per_pool
    assert of_pool is not None  # the NLL of pairs has one
    return paired_permutation_test(of_pool(pools), of_pool(before), seed=seed).p_value


def _ranked(pools: PoolScores, by_score: bool) -> Measured:
    """Return R@1 by the probabilities, or by the scores themselves."""
    ranking = pools.logit if by_score else pools.prob
    hit = top_candidate(replace(pools, logit=ranking)).hit[pools.pool_sum(pools.label) > 0]
    if not hit.size:
        return Measured(math.nan, math.nan, math.nan)
    return _fraction(float(hit.sum()), hit.size)


def _fraction(successes: float, count: int) -> Measured:
    low, high = wilson_interval(np.asarray(successes), np.asarray(float(count)))
    return Measured(successes / count if count else math.nan, float(low), float(high))


@dataclass(frozen=True)
class AcceptanceReport:
    """What the threshold for a stated precision does.

    Attributes:
        threshold: None where no threshold reaches the precision on the fitting half.
        precision: fraction of accepted pairs that are right, on the report half; NaN if none is accepted.
        recall: fraction of right pairs that are accepted.
        num_accepted: accepted pairs.
        verdict: one sentence for people.
    """

    threshold: Acceptance | None
    precision: Measured
    recall: float
    num_accepted: int
    verdict: str


def measured_acceptance(
    report: PoolScores, threshold: Acceptance | None, wanted: float, best_precision: float
) -> AcceptanceReport:
    """Measure a threshold on the report half.

    Args:
        report: pools with calibrated probabilities.
        threshold: what was fitted, if anything.
        wanted: the stated precision.
        best_precision: the highest precision of any threshold on the fitting half.
    """
    if threshold is None:
        verdict = (
            f"No clean separation: no threshold has a precision of {wanted:.0%}; the highest on the fitting half is "
            f"{best_precision:.1%}. Lower the precision, or get a ranker that separates right from wrong."
        )
        return AcceptanceReport(None, Measured(math.nan, math.nan, math.nan), 0.0, 0, verdict)
    accepted = report.prob >= threshold.prob
    num_accepted, num_right = int(accepted.sum()), int(report.label[accepted].sum())
    precision = _fraction(num_right, num_accepted)
    recall = num_right / max(1, int(report.label.sum()))
    return AcceptanceReport(
        threshold, precision, recall, num_accepted, _verdict(threshold, precision, recall, num_accepted)
    )


def _verdict(threshold: Acceptance, precision: Measured, recall: float, num_accepted: int) -> str:
    rule = f"probability ≥ {threshold.prob:.4g}"
    if threshold.score is not None:
        rule += f" (score ≥ {threshold.score:.4g})"
    if not num_accepted:
        return f"No clean separation: {rule} accepts no pair of the report half."
    found = (
        f"{rule} accepts {num_accepted} pairs of the report half, {precision.value:.1%} of them right "
        f"(95 % interval {precision.low:.1%} to {precision.high:.1%}), and finds {recall:.1%} of the right ones"
    )
    wanted = f"{threshold.precision:.0%}"
    if precision.high < threshold.precision:
        return f"No clean separation: {found}. That is below the stated {wanted}."
    if precision.low < threshold.precision:
        return f"{found}. The stated {wanted} is within the interval, so it is neither shown nor refuted."
    return f"{found}. The stated {wanted} holds."


@dataclass(frozen=True)
class SetReport:
    """What answer sets do on the report half, or why there are none.

    Attributes:
        coverage: fraction of sets that contain a right candidate, among the pools that have one; None without sets.
        mean_size: mean number of candidates in a set, over all pools.
        verdict: one sentence for people.
    """

    coverage: Measured | None
    mean_size: float
    verdict: str


def measured_sets(
    report: PoolScores, logit: FloatArray, sets: AnswerSets | None, wanted: float, missing: str
) -> SetReport:
    """Measure answer sets on the report half; `missing` says why there are none."""
    if sets is None:
        return SetReport(None, math.nan, f"No answer sets: {missing}")
    contained = sets.contain(report, logit)
    answerable = report.pool_sum(report.label) > 0
    hit = (report.pool_sum(contained & (report.label == 1)) > 0)[answerable]
    size = float(report.pool_sum(contained).mean())
    coverage = _fraction(float(hit.sum()), hit.size)
    return SetReport(
        coverage,
        size,
        f"answer sets for {wanted:.0%} contain a right candidate in {coverage.value:.1%} of the pools that have one "
        f"(95 % interval {coverage.low:.1%} to {coverage.high:.1%}); they have {size:.1f} of "
        f"{report.sizes().mean():.1f} candidates on average",
    )
