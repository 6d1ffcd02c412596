"""All metrics of a predictions table at once, with bootstrap intervals over pools."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from icalib.core.run_folder import METRIC_SCHEMA
from icalib.metrics.calibration import (
    NUM_BINS,
    BinSums,
    bin_sums,
    brier_skill,
    ece_of,
    log_losses,
    mce_of,
    resampled_adaptive_ece,
)
from icalib.metrics.classification import Decision, classification
from icalib.metrics.pairs import FloatArray, IntArray, PoolScores
from icalib.metrics.ranking import average_precision, recall_at_k, top_candidate
from icalib.metrics.selective import aurc, auroc, coverage_at_risk, e_aurc, risk_at_coverage
from icalib.metrics.significance import Interval, bootstrap


class Metric(NamedTuple):
    """What a table's reader needs to know; `greater_is_better` is None where no direction is better."""

    title: str
    greater_is_better: bool | None
    description: str


METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        "R@1": Metric("R@1", True, "share of pools whose best candidate is right"),
        "R@2": Metric("R@2", True, "share of right candidates among the best two"),
        "R@5": Metric("R@5", True, "share of right candidates among the best five"),
        "MAP": Metric("MAP", True, "mean average precision; mean 1/rank with one right candidate"),
        "F1": Metric("F1", True, "F1 over pairs as the run decides: at the fitted threshold, or argmax"),
        "P": Metric("P", True, "precision over pairs, decided as for F1"),
        "R": Metric("R", True, "recall over pairs, decided as for F1"),
        "F1@0.5": Metric("F1 at 0.5", True, "F1 over pairs at threshold 0.5"),
        "P@0.5": Metric("P at 0.5", True, "precision over pairs at threshold 0.5"),
        "R@0.5": Metric("R at 0.5", True, "recall over pairs at threshold 0.5"),
        "F1_argmax": Metric("F1 by argmax", True, "F1 over pairs if each pool's best candidate alone is called right"),
        "ECE": Metric("ECE", False, "expected calibration error over pairs, 10 equal bins"),
        "ECE_adaptive": Metric("adaptive ECE", False, "calibration error over pairs, 10 bins of equal count"),
        "ECE_top1": Metric("top-1 ECE", False, "calibration error of each pool's best candidate, 10 equal bins"),
        "MCE": Metric("MCE", False, "largest calibration error of a bin, 10 equal bins over pairs"),
        "MCE@30": Metric("MCE, full bins", False, "the same among bins of 30 pairs or more"),
        "NLL": Metric("NLL", False, "negative log-likelihood of pairs, nats"),
        "Brier": Metric("Brier", False, "mean squared error of the probabilities over pairs"),
        "Brier_skill": Metric("Brier skill", True, "1 − Brier / Brier of the base rate"),
        "gap": Metric("signed gap", None, "mean probability − share of right pairs; above 0 is over-confident"),
        "mean_prob": Metric("mean probability", None, "mean probability over pairs"),
        "AURC": Metric("AURC", False, "area under the risk-coverage curve of the best candidates"),
        "E_AURC": Metric("E-AURC", False, "AURC above that of the perfect order"),
        "risk@80": Metric("risk at 80 %", False, "error rate of the 80 % most confident pools"),
        "coverage@5": Metric("coverage at 5 %", True, "largest share of pools answered with an error rate of 5 %"),
        "AUROC": Metric("AUROC", True, "chance that a hit is more confident than an error"),
        "threshold": Metric("threshold", None, "decision threshold, fitted on validation; argmax doesn't use it"),
        "num_pools": Metric("pools", None, "pools with known labels"),
    }
)
"""Every metric of `summarise`, in the order of its table."""

_SUMMARY_SCHEMA = METRIC_SCHEMA.remove(METRIC_SCHEMA.get_field_index("split"))


def summarise(
    predictions: pa.Table,
    *,
    threshold: float,
    seed: int,
    decision: Decision = "threshold",
    num_bootstrap: int = 1000,
) -> pa.Table:
    """METRIC_SCHEMA without `split`: one row for each of METRICS, in its order.

    Args:
        predictions: PREDICTION_SCHEMA; pools of unknown label don't count.
        threshold: decision threshold for P, R and F1, fitted on validation.
        seed: root seed of the bootstrap.
        decision: whether P, R and F1 are at the threshold or by argmax, in expectation over ties.
        num_bootstrap: resamples of the pools behind the 95 % intervals.

    Raises:
        DataError: see `PoolScores.from_predictions`.
    """
    scores = PoolScores.from_predictions(predictions)
    statistics = _Statistics(scores, threshold, decision)
    everything = np.arange(scores.num_pools)[np.newaxis]
    values = {name: float(value[0]) for name, value in statistics.of(everything).items()}
    values |= {"threshold": threshold, "num_pools": scores.num_pools}
    intervals = bootstrap(statistics.of, scores.num_pools, seed=seed, num_bootstrap=num_bootstrap)
    none = Interval(np.nan, np.nan)
    rows = [(name, values[name], *intervals.get(name, none)) for name in METRICS]
    return pa.table(list(zip(*rows, strict=True)), schema=_SUMMARY_SCHEMA)


class _Statistics:
    """Sums per pool, so that the metrics of many resamples of the B pools are a few matrix products."""

    def __init__(self, scores: PoolScores, threshold: float, decision: Decision) -> None:
        prob, label = scores.prob, scores.label
        top = top_candidate(scores)
        self._scores = scores
        self._confidence = top.prob
        self._error = 1 - top.hit
        self._by_confidence = np.argsort(-top.prob, kind="stable")
        self._place = np.argsort(self._by_confidence)
        self._means = {f"R@{k}": recall_at_k(scores, k) for k in (1, 2, 5)} | {"MAP": average_precision(scores)}
        self._num_pairs = np.diff(scores.offsets).astype(np.float64)
        self._num_right = scores.pool_sum(label)
        self._sum_prob = scores.pool_sum(prob)
        self._sum_square = scores.pool_sum((prob - label) ** 2)
        self._sum_nll = scores.pool_sum(log_losses(prob, label))
        by_argmax = top.hit, np.ones(scores.num_pools)
        self._positives = {
            "": by_argmax if decision == "argmax" else _positives(scores, threshold),
            "@0.5": _positives(scores, 0.5),
            "_argmax": by_argmax,
        }
        self._pair_bins = bin_sums(prob, label, NUM_BINS, group=scores.pool)
        self._top_bins = bin_sums(top.prob, top.hit, NUM_BINS, group=np.arange(scores.num_pools))

    def of(self, resamples: IntArray) -> dict[str, FloatArray]:
        """Metrics of resamples, [R, B] indices of pools: [R] each."""
        times = _times_drawn(resamples)
        return (
            {name: times @ values / times.sum(axis=1) for name, values in self._means.items()}
            | self._classification(times)
            | self._calibration(times)
            | self._selective(resamples)
        )

    def _classification(self, times: FloatArray) -> dict[str, FloatArray]:
        num_right = times @ self._num_right
        metrics: dict[str, FloatArray] = {}
        for suffix, (true_positives, predicted) in self._positives.items():
            p, r, f1 = classification(times @ true_positives, times @ predicted, num_right)
            metrics |= {f"P{suffix}": p, f"R{suffix}": r, f"F1{suffix}": f1}
        return metrics

    def _calibration(self, times: FloatArray) -> dict[str, FloatArray]:
        num_pairs = times @ self._num_pairs
        pair_bins, top_bins = (BinSums(*(times @ sums for sums in bins)) for bins in (self._pair_bins, self._top_bins))
        base_rate = times @ self._num_right / num_pairs
        mean_prob = times @ self._sum_prob / num_pairs
        brier = times @ self._sum_square / num_pairs
        scores = self._scores
        return {
            "ECE": ece_of(pair_bins),
            "ECE_adaptive": resampled_adaptive_ece(scores.prob, scores.label, times[:, scores.pool]),
            "ECE_top1": ece_of(top_bins),
            "MCE": mce_of(pair_bins),
            "MCE@30": mce_of(pair_bins, min_count=30),
            "NLL": times @ self._sum_nll / num_pairs,
            "Brier": brier,
            "Brier_skill": brier_skill(brier, base_rate),
            "mean_prob": mean_prob,
            "gap": mean_prob - base_rate,
        }

    def _selective(self, resamples: IntArray) -> dict[str, FloatArray]:
        # sorting places here makes the sort by confidence, which every metric below needs, a single pass
        drawn = self._by_confidence[np.sort(self._place[resamples], axis=1)]
        confidence, error = self._confidence[drawn], self._error[drawn]
        return {
            "AURC": aurc(confidence, error),
            "E_AURC": e_aurc(confidence, error),
            "risk@80": risk_at_coverage(confidence, error, 0.8),
            "coverage@5": coverage_at_risk(confidence, error, 0.05),
            "AUROC": auroc(confidence, error),
        }


def _positives(scores: PoolScores, threshold: float) -> tuple[FloatArray, FloatArray]:
    """True and predicted positives of each pool, [B] each."""
    predicted = scores.prob > threshold
    return scores.pool_sum(predicted & (scores.label == 1)), scores.pool_sum(predicted)


def _times_drawn(resamples: IntArray) -> FloatArray:
    """How often each resample holds each pool: [R, B] indices → [R, B] counts."""
    num_resamples, num_pools = resamples.shape
    cell = resamples + np.arange(num_resamples)[:, np.newaxis] * num_pools
    counts = np.bincount(cell.ravel(), minlength=resamples.size)
    return counts.reshape(resamples.shape).astype(np.float64)
