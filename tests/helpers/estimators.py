"""Estimators that are asked about one model alone."""

from __future__ import annotations

from icalib.inference.moments import Moments
from icalib.uncertainty.estimator import AbstractEstimator, PairModel


def estimated(config: AbstractEstimator.Config, model: PairModel) -> Moments:
    """The moments of the model's logits."""
    estimator = config.build()
    return estimator.moments(estimator.components(model))
