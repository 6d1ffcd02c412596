"""The metrics of icalib, in the order of tables. A new one is an entry of `BUILTIN`; nothing else needs to know it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import bdtrik

from icalib.metrics.answerability import NONE_METRICS
from icalib.metrics.calibration import BinSums, SortedPairs, adaptive_ece, bin_sums, ece_of, log_losses
from icalib.metrics.classification import Classification, classification
from icalib.metrics.metric import Metric, PoolSamples
from icalib.metrics.pairs import FloatArray, PoolScores, ratio
from icalib.metrics.ranking import average_precision, recall_at_k, reciprocal_rank, top_candidate
from icalib.metrics.selective import RankedPools, aurc, auroc


def _num_right(scores: PoolScores) -> FloatArray:
    return scores.pool_sum(scores.label)


def _sum_prob(scores: PoolScores) -> FloatArray:
    return scores.pool_sum(scores.prob)


def _hit(scores: PoolScores) -> FloatArray:
    return top_candidate(scores).hit


def _chance(scores: PoolScores) -> FloatArray:
    """Return the expected R@1 of a random order, [B]: one of r right candidates is first with r/C, and counts 1/r."""
    return np.where(scores.answerable, 1 / scores.sizes(), np.nan)


def _chance_square(scores: PoolScores) -> FloatArray:
    """Return the expected square of a random order's R@1, [B]."""
    return ratio(1 / scores.sizes(), _num_right(scores), np.nan)


def _chance_limit(samples: PoolSamples) -> FloatArray:
    """Return a limit between two numbers of hits: more are binomial with a probability of 5 % or less.

    Pools of several sizes have fewer (Hoeffding 1956). With r right candidates each, they are as good as r times as
    many, whose hits count 1/r.
    """
    num_answerable = samples.sum(lambda scores: scores.answerable.astype(np.float64))
    chance = samples.mean(_chance)
    number = ratio(num_answerable * chance, samples.mean(_chance_square), np.nan)
    hits = np.ceil(bdtrik(0.95, number, chance) - 1e-9)
    return np.minimum((hits + 0.5) / number, 1.0)


def _has_several_right(scores: PoolScores) -> bool:
    return bool((_num_right(scores) > 1).any())  # elsewhere MRR is MAP, and hit@1 is R@1


def _pair_bins(scores: PoolScores) -> BinSums:
    return bin_sums(scores.prob, scores.label, group=scores.pool)


def _top_bins(scores: PoolScores) -> BinSums:
    top = top_candidate(scores)
    return bin_sums(top.prob, top.hit, group=np.arange(scores.num_pools))


def _by_confidence(scores: PoolScores) -> RankedPools:
    top = top_candidate(scores)
    return RankedPools.by(top.prob, 1 - top.hit)


def _decided(samples: PoolSamples) -> Classification:
    num_right = samples.sum(_num_right)
    if samples.evaluation.decision == "argmax":
        return classification(samples.sum(_hit), samples.num_pools, num_right)
    called, called_right = samples.evaluation.called
    return classification(samples.times @ called_right, samples.times @ called, num_right)


def _mean_prob(samples: PoolSamples) -> FloatArray:
    return samples.sum(_sum_prob) / samples.sum(PoolScores.sizes)


def _sorted_pairs(scores: PoolScores) -> SortedPairs:
    return SortedPairs.of(scores.prob, scores.label, scores.pool)


def _adaptive_ece(samples: PoolSamples) -> FloatArray:
    return adaptive_ece(samples.evaluation.once(_sorted_pairs), samples.times)


def _ranking(
    name: str,
    description: str,
    per_pool: Callable[[PoolScores], FloatArray],
    applies: Callable[[PoolScores], bool] | None = None,
) -> Metric:
    return Metric(name, "rank", "maximize", description, per_pool=per_pool, bounds=(0, 1), applies=applies)


def _class(name: str, description: str, function: Callable[[Classification], FloatArray]) -> Metric:
    return Metric(name, "class", "maximize", description, lambda samples: function(_decided(samples)))


def _calibration_error(
    name: str, description: str, function: Callable[[PoolSamples], FloatArray], heading: str = ""
) -> Metric:
    """Return a metric of absolute gaps between probabilities and frequencies."""
    return Metric(name, "cal", "minimize", description, function, heading=heading, biased=True, bounds=(0, 1))


def _pair_loss(name: str, description: str, losses: Callable[[PoolScores], FloatArray]) -> Metric:
    """Return a metric that is a mean over pairs."""

    def pool_sum(scores: PoolScores) -> FloatArray:
        return scores.pool_sum(losses(scores))

    return Metric(
        name,
        "cal",
        "minimize",
        description,
        lambda samples: samples.sum(pool_sum) / samples.sum(PoolScores.sizes),
        per_pool=lambda scores: pool_sum(scores) / scores.sizes(),
    )


BUILTIN: tuple[Metric, ...] = (
    _ranking(
        "R@1",
        "fraction of right candidates that are ranked first; of pools, where each has one",
        lambda scores: recall_at_k(scores, 1),
    ),
    _ranking("R@2", "fraction of right candidates among the best two", lambda scores: recall_at_k(scores, 2)),
    _ranking("R@5", "fraction of right candidates among the best five", lambda scores: recall_at_k(scores, 5)),
    _ranking("MAP", "mean average precision; mean 1/rank with one right candidate", average_precision),
    _ranking("MRR", "mean 1/rank of the first right candidate of a pool", reciprocal_rank, _has_several_right),
    _ranking(
        "hit@1",
        "fraction of pools whose best candidate is right, among those with a right one",
        lambda scores: np.where(scores.answerable, _hit(scores), np.nan),
        _has_several_right,
    ),
    _class("F1", "F1 over pairs as the run decides: at the fitted threshold, or argmax", lambda decided: decided.f1),
    _class("P", "precision over pairs, decided as for F1", lambda decided: decided.precision),
    _class("R", "recall over pairs, decided as for F1", lambda decided: decided.recall),
    _calibration_error(
        "ECE", "expected calibration error over pairs, 10 equal bins", lambda samples: ece_of(samples.bins(_pair_bins))
    ),
    _calibration_error(
        "ECE_adaptive", "calibration error over pairs, 10 bins of equal count", _adaptive_ece, heading="adaptive ECE"
    ),
    _calibration_error(
        "ECE_top1",
        "calibration error of each pool's best candidate, 10 equal bins",
        lambda samples: ece_of(samples.bins(_top_bins)),
        heading="top-1 ECE",
    ),
    _pair_loss("NLL", "negative log-likelihood of pairs, nats", lambda scores: log_losses(scores.prob, scores.label)),
    _pair_loss(
        "Brier", "mean squared error of the probabilities over pairs", lambda scores: (scores.prob - scores.label) ** 2
    ),
    Metric(
        "gap",
        "cal",
        None,
        "mean probability − fraction of right pairs; above 0 is over-confident",
        lambda samples: _mean_prob(samples) - samples.sum(_num_right) / samples.sum(PoolScores.sizes),
        heading="signed gap",
    ),
    Metric("mean_prob", "cal", None, "mean probability over pairs", _mean_prob, heading="mean probability"),
    Metric(
        "AURC",
        "sel",
        "minimize",
        "area under the risk-coverage curve of the best candidates",
        lambda samples: aurc(samples.blocks(_by_confidence)),
    ),
    Metric(
        "AUROC",
        "sel",
        "maximize",
        "probability that a hit is more confident than an error",
        lambda samples: auroc(samples.blocks(_by_confidence)),
    ),
    *NONE_METRICS,
    Metric(
        "R@1_chance",
        "rank",
        None,
        "R@1 that a random order of the candidates exceeds in at most 5 % of cases",
        _chance_limit,
        heading="chance",
        has_interval=False,
    ),
    Metric(
        "threshold",
        "class",
        None,
        "decision threshold, fitted on validation; argmax doesn't use it",
        lambda samples: np.full(len(samples.times), samples.evaluation.threshold),
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
