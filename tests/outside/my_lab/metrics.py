"""Metrics of my lab."""

import numpy as np

from icalib.metrics.metric import Metric
from icalib.metrics.pairs import FloatArray, PoolScores


def rank_of_right(scores: PoolScores) -> FloatArray:
    """Return each pool's rank of its right candidate, [B]; tied candidates share their ranks' mean."""
    pools = zip(scores.split(scores.logit), scores.split(scores.label == 1), strict=True)
    return np.array([_rank(logit[right], logit[~right]) for logit, right in pools])


def _rank(right: FloatArray, wrong: FloatArray) -> float:
    ahead = (np.sign(wrong[:, np.newaxis] - right) + 1) / 2  # 1 above, ½ tied, 0 below
    return float(1 + ahead.sum(axis=0).mean())


mean_rank = Metric(
    name="mean_rank",
    group="rank",
    direction="minimize",
    description="mean rank of the right candidate; 1 is the best",
    per_pool=rank_of_right,
    heading="mean rank",
)
