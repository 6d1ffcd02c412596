"""The metrics of icalib, in the order of tables. A new one is an entry of `BUILTIN`; nothing else needs to know it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from icalib.metrics.calibration import (
    NUM_BINS,
    BinSums,
    bin_sums,
    brier_skill,
    debiased_ece_of,
    ece_of,
    log_losses,
    mce_of,
    resampled_adaptive_ece,
)
from icalib.metrics.classification import Classification, Decision, classification
from icalib.metrics.metric import Metric
from icalib.metrics.none_metrics import NONE_METRICS
from icalib.metrics.pairs import FloatArray, PoolScores
from icalib.metrics.ranking import average_precision, recall_at_k, reciprocal_rank, top_candidate
from icalib.metrics.samples import PoolSamples
from icalib.metrics.selective import aurc, auroc, coverage_at_risk, e_aurc, risk_at_coverage


def _num_right(scores: PoolScores) -> FloatArray:
    return scores.pool_sum(scores.label)


def _sum_prob(scores: PoolScores) -> FloatArray:
    return scores.pool_sum(scores.prob)


def _sum_square(scores: PoolScores) -> FloatArray:
    return scores.pool_sum((scores.prob - scores.label) ** 2)


def _sum_nll(scores: PoolScores) -> FloatArray:
    return scores.pool_sum(log_losses(scores.prob, scores.label))


def _hit(scores: PoolScores) -> FloatArray:
    return top_candidate(scores).hit


def _hit_or_nan(scores: PoolScores) -> FloatArray:
    return np.where(scores.answerable, _hit(scores), np.nan)


def _has_several_right(scores: PoolScores) -> bool:
    """Whether a pool has several right candidates: elsewhere MRR is MAP, and hit@1 is R@1."""
    return bool((_num_right(scores) > 1).any())


def _true_positives(scores: PoolScores, threshold: float) -> FloatArray:
    return scores.pool_sum((scores.prob > threshold) & (scores.label == 1))


def _predicted_positives(scores: PoolScores, threshold: float) -> FloatArray:
    return scores.pool_sum(scores.prob > threshold)


def _pair_bins(scores: PoolScores) -> BinSums:
    return bin_sums(scores.prob, scores.label, NUM_BINS, group=scores.pool)


def _top_bins(scores: PoolScores) -> BinSums:
    top = top_candidate(scores)
    return bin_sums(top.prob, top.hit, NUM_BINS, group=np.arange(scores.num_pools))


def _squared_gaps(scores: PoolScores, bins: Callable[[PoolScores], BinSums]) -> FloatArray:
    sums = bins(scores)
    return (sums.prob - sums.label) ** 2


def _debiased_ece(samples: PoolSamples, bins: Callable[[PoolScores], BinSums]) -> FloatArray:
    """Return the debiased ECE; the variance is that over pools, whose candidates are not independent."""
    sums = samples.bins(bins)
    squares = samples.sum(_squared_gaps, bins)
    return debiased_ece_of(sums, squares - (sums.prob - sums.label) ** 2 / samples.num_pools[:, np.newaxis])


def _decided(samples: PoolSamples, decision: Decision, threshold: float) -> Classification:
    if decision == "argmax":
        return classification(samples.sum(_hit), samples.num_pools, samples.sum(_num_right))
    return classification(
        samples.sum(_true_positives, threshold), samples.sum(_predicted_positives, threshold), samples.sum(_num_right)
    )


def _as_decided(samples: PoolSamples) -> Classification:
    """Return P, R and F1 by the decision of the run."""
    return _decided(samples, samples.evaluation.decision, samples.evaluation.threshold)


def _at_half(samples: PoolSamples) -> Classification:
    return _decided(samples, "threshold", 0.5)


def _num_pairs(samples: PoolSamples) -> FloatArray:
    return samples.sum(PoolScores.sizes)


def _brier(samples: PoolSamples) -> FloatArray:
    return samples.sum(_sum_square) / _num_pairs(samples)


def _base_rate(samples: PoolSamples) -> FloatArray:
    return samples.sum(_num_right) / _num_pairs(samples)


def _mean_prob(samples: PoolSamples) -> FloatArray:
    return samples.sum(_sum_prob) / _num_pairs(samples)


def _adaptive_ece(samples: PoolSamples) -> FloatArray:
    scores = samples.scores
    return resampled_adaptive_ece(scores.prob, scores.label, samples.times[:, scores.pool])


def _calibration_error(
    name: str, description: str, function: Callable[[PoolSamples], FloatArray], heading: str = ""
) -> Metric:
    """Return a metric of absolute gaps between probabilities and frequencies."""
    return Metric(name, "cal", "minimize", description, function, heading=heading, biased=True, bounds=(0, 1))


BUILTIN: tuple[Metric, ...] = (
    Metric(
        "R@1",
        "rank",
        "maximize",
        "fraction of right candidates that are ranked first; of pools, where each has one",
        per_pool=lambda scores: recall_at_k(scores, 1),
    ),
    Metric(
        "R@2",
        "rank",
        "maximize",
        "fraction of right candidates among the best two",
        per_pool=lambda scores: recall_at_k(scores, 2),
    ),
    Metric(
        "R@5",
        "rank",
        "maximize",
        "fraction of right candidates among the best five",
        per_pool=lambda scores: recall_at_k(scores, 5),
    ),
    Metric(
        "MAP",
        "rank",
        "maximize",
        "mean average precision; mean 1/rank with one right candidate",
        per_pool=average_precision,
    ),
    Metric(
        "MRR",
        "rank",
        "maximize",
        "mean 1/rank of the first right candidate of a pool",
        per_pool=reciprocal_rank,
        applies=_has_several_right,
    ),
    Metric(
        "hit@1",
        "rank",
        "maximize",
        "fraction of pools whose best candidate is right, among those with a right one",
        per_pool=_hit_or_nan,
        applies=_has_several_right,
    ),
    Metric(
        "F1",
        "class",
        "maximize",
        "F1 over pairs as the run decides: at the fitted threshold, or argmax",
        lambda samples: _as_decided(samples).f1,
    ),
    Metric(
        "P",
        "class",
        "maximize",
        "precision over pairs, decided as for F1",
        lambda samples: _as_decided(samples).precision,
    ),
    Metric(
        "R",
        "class",
        "maximize",
        "recall over pairs, decided as for F1",
        lambda samples: _as_decided(samples).recall,
    ),
    Metric(
        "F1@0.5",
        "class",
        "maximize",
        "F1 over pairs at threshold 0.5",
        lambda samples: _at_half(samples).f1,
        heading="F1 at 0.5",
    ),
    Metric(
        "P@0.5",
        "class",
        "maximize",
        "precision over pairs at threshold 0.5",
        lambda samples: _at_half(samples).precision,
        heading="P at 0.5",
    ),
    Metric(
        "R@0.5",
        "class",
        "maximize",
        "recall over pairs at threshold 0.5",
        lambda samples: _at_half(samples).recall,
        heading="R at 0.5",
    ),
    Metric(
        "F1_argmax",
        "class",
        "maximize",
        "F1 over pairs if each pool's best candidate alone is called right",
        lambda samples: _decided(samples, "argmax", 0.5).f1,
        heading="F1 by argmax",
    ),
    _calibration_error(
        "ECE",
        "expected calibration error over pairs, 10 equal bins",
        lambda samples: ece_of(samples.bins(_pair_bins)),
    ),
    _calibration_error(
        "ECE_debiased",
        "ECE less an estimate of what it owes to few pools",
        partial(_debiased_ece, bins=_pair_bins),
        heading="debiased ECE",
    ),
    _calibration_error(
        "ECE_adaptive",
        "calibration error over pairs, 10 bins of equal count",
        _adaptive_ece,
        heading="adaptive ECE",
    ),
    _calibration_error(
        "ECE_top1",
        "calibration error of each pool's best candidate, 10 equal bins",
        lambda samples: ece_of(samples.bins(_top_bins)),
        heading="top-1 ECE",
    ),
    _calibration_error(
        "ECE_top1_debiased",
        "top-1 ECE less an estimate of what it owes to few pools",
        partial(_debiased_ece, bins=_top_bins),
        heading="debiased top-1 ECE",
    ),
    _calibration_error(
        "MCE",
        "largest calibration error of a bin, 10 equal bins over pairs",
        lambda samples: mce_of(samples.bins(_pair_bins)),
    ),
    _calibration_error(
        "MCE@30",
        "the same among bins of 30 pairs or more",
        lambda samples: mce_of(samples.bins(_pair_bins), min_count=30),
        heading="MCE, full bins",
    ),
    Metric(
        "NLL",
        "cal",
        "minimize",
        "negative log-likelihood of pairs, nats",
        lambda samples: samples.sum(_sum_nll) / _num_pairs(samples),
        per_pool=lambda scores: _sum_nll(scores) / scores.sizes(),
    ),
    Metric(
        "Brier",
        "cal",
        "minimize",
        "mean squared error of the probabilities over pairs",
        _brier,
        per_pool=lambda scores: _sum_square(scores) / scores.sizes(),
    ),
    Metric(
        "Brier_skill",
        "cal",
        "maximize",
        "1 − Brier / Brier of the base rate",
        lambda samples: brier_skill(_brier(samples), _base_rate(samples)),
        heading="Brier skill",
    ),
    Metric(
        "gap",
        "cal",
        None,
        "mean probability − fraction of right pairs; above 0 is over-confident",
        lambda samples: _mean_prob(samples) - _base_rate(samples),
        heading="signed gap",
    ),
    Metric("mean_prob", "cal", None, "mean probability over pairs", _mean_prob, heading="mean probability"),
    Metric(
        "AURC",
        "sel",
        "minimize",
        "area under the risk-coverage curve of the best candidates",
        lambda samples: aurc(*samples.top),
    ),
    Metric(
        "E_AURC",
        "sel",
        "minimize",
        "AURC above that of the perfect order",
        lambda samples: e_aurc(*samples.top),
        heading="E-AURC",
    ),
    Metric(
        "risk@80",
        "sel",
        "minimize",
        "error rate of the 80 % most confident pools",
        lambda samples: risk_at_coverage(*samples.top, 0.8),
        heading="risk at 80 %",
    ),
    Metric(
        "coverage@5",
        "sel",
        "maximize",
        "largest fraction of pools answered with an error rate of 5 %",
        lambda samples: coverage_at_risk(*samples.top, 0.05),
        heading="coverage at 5 %",
    ),
    Metric(
        "AUROC",
        "sel",
        "maximize",
        "probability that a hit is more confident than an error",
        lambda samples: auroc(*samples.top),
    ),
    *NONE_METRICS,
    Metric(
        "threshold",
        "class",
        None,
        "decision threshold, fitted on validation; argmax doesn't use it",
        lambda samples: np.full(len(samples.drawn), samples.evaluation.threshold),
        has_interval=False,
    ),
    Metric(
        "num_pools",
        "data",
        None,
        "pools with known labels",
        lambda samples: samples.num_pools,
        heading="pools",
        has_interval=False,
    ),
)
