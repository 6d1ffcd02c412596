"""A calibration map that sees the whole pool: by how much a candidate leads, and what its rivals are like.

The probability is a logistic regression on the pair's logit, on its lead over the best other candidate and on facts
of the pool. Both weights of the pair are at least 0, so that candidates of a pool keep their order.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, final

import numpy as np
from pydantic import FiniteFloat, NonNegativeFloat, PositiveFloat
from scipy.optimize import minimize
from scipy.special import expit, logit

from icalib.core.component import Settings
from icalib.metrics.calibration import nll_from_logits
from icalib.metrics.pairs import FloatArray, IntArray

_PENALTY = 1e-3  # per pair: the features of few pools are nearly dependent
_NUM_MONOTONE = 2  # the first features, which grow with the pair's own logit


@final
class PoolFeatureMap(Settings):
    """σ(offset + Σ wᵢ xᵢ): the features are those of `pool_features`, standardised."""

    kind: Literal["pool-features"] = "pool-features"
    centre: FiniteFloat
    """Mean of the logits that the map was fitted on."""
    spread: Annotated[PositiveFloat, FiniteFloat]
    """Their standard deviation."""
    pair_weights: tuple[Annotated[NonNegativeFloat, FiniteFloat], ...]
    """Weights of the logit and of its lead over the best other candidate."""
    pool_weights: tuple[FiniteFloat, ...]
    """Weights of the best logit, the lead of the best candidate, the standard deviation and ln C."""
    offset: FiniteFloat

    def apply(self, logit_N: FloatArray, offsets: IntArray) -> FloatArray:
        """Return probabilities in [0, 1], [N].

        Args:
            logit_N: [N].
            offsets: [B + 1]; pool b's candidates are `offsets[b]:offsets[b + 1]`.
        """
        features = pool_features((logit_N - self.centre) / self.spread, offsets)
        return expit(features @ np.array([*self.pair_weights, *self.pool_weights]) + self.offset)


def pool_features(z_N: FloatArray, offsets: IntArray) -> FloatArray:
    """Return the features of pairs, [N, 6], from standardised logits.

    The lead of a pool's only candidate is 0.
    """
    start, size = offsets[:-1], np.diff(offsets)
    pool = np.repeat(np.arange(len(size)), size)
    best = np.maximum.reduceat(z_N, start)
    num_best = np.add.reduceat((z_N == best[pool]).astype(np.float64), start)
    below = np.maximum.reduceat(np.where(z_N == best[pool], -np.inf, z_N), start)
    second = np.where((num_best > 1) | np.isneginf(below), best, below)
    lead = z_N - np.where(z_N == best[pool], second[pool], best[pool])
    mean = np.add.reduceat(z_N, start) / size
    deviation = np.sqrt(np.add.reduceat((z_N - mean[pool]) ** 2, start) / size)
    of_pool = np.stack([best, best - second, deviation, np.log(size)], axis=1)
    return np.concatenate([np.stack([z_N, lead], axis=1), of_pool[pool]], axis=1)


def fit_pool_features(logit_N: FloatArray, label_N: IntArray, offsets: IntArray) -> PoolFeatureMap:
    """Fit by penalised maximum likelihood; there are right and wrong pairs."""
    centre, spread = float(logit_N.mean()), float(logit_N.std()) or 1.0
    features = pool_features((logit_N - centre) / spread, offsets)
    target = label_N.astype(np.float64)

    def objective(parameters: FloatArray) -> tuple[float, FloatArray]:
        weights, offset = parameters[:-1], parameters[-1]
        z_N = features @ weights + offset
        residual_N = (expit(z_N) - target) / len(z_N)
        value = nll_from_logits(z_N, target) + _PENALTY / 2 * float(weights @ weights)
        return value, np.append(features.T @ residual_N + _PENALTY * weights, residual_N.sum())

    num_weights = features.shape[1]
    bounds = [(0, None)] * _NUM_MONOTONE + [(None, None)] * (num_weights - _NUM_MONOTONE + 1)
    start = np.append(np.r_[1.0, np.zeros(num_weights - 1)], logit(target.mean()))
    best: Any = minimize(
        objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-14, "gtol": 1e-8}
    )
    weights = best.x[:-1].tolist()
    return PoolFeatureMap(
        centre=centre,
        spread=spread,
        pair_weights=tuple(weights[:_NUM_MONOTONE]),
        pool_weights=tuple(weights[_NUM_MONOTONE:]),
        offset=float(best.x[-1]),
    )
