"""Calibrate another ranker's scores: one half of the queries fits and chooses, the other half measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

import numpy as np

from icalib.calibration.calibrator import AbstractCalibrator, Isotonic, Platt, Temperature
from icalib.calibration.fitted import AffineMap, IsotonicMap
from icalib.core.errors import DataError
from icalib.core.seeding import child_seed
from icalib.external.calibrator import Calibrator, Measured, Scale, as_logit
from icalib.metrics.calibration import nll
from icalib.metrics.catalogue import find_metric
from icalib.metrics.metric import Evaluation
from icalib.metrics.pairs import IntArray, PoolScores
from icalib.metrics.summary import measure

METRICS = ("NLL", "ECE", "Brier")
MIN_QUERIES = 20
UNCHANGED = "none"
"""Scores as they are: probabilities themselves, or the sigmoid of anything else."""
METHODS: Mapping[str, AbstractCalibrator.Config | None] = MappingProxyType(
    {UNCHANGED: None, "temperature": Temperature.Config(), "platt": Platt.Config(), "isotonic": Isotonic.Config()}
)
"""What is fitted, the simplest first."""
_NUM_FOLDS = 5


def calibrate(pools: PoolScores, scale: Scale | Literal["auto"] = "auto", *, seed: int = 1) -> Calibrator:
    """Fit on one half of the queries, drawn by `seed`, and measure on the other.

    `pools` have scores as `logit`; scale auto takes them for probabilities if all are from 0 to 1. A DataError says
    that there are too few queries, or no right or no wrong pairs, or what `as_logit` refuses.
    """
    _check(pools)
    if scale == "auto":
        scale = "probability" if bool(((pools.logit >= 0) & (pools.logit <= 1)).all()) else "logit"
    logits = replace(pools, logit=as_logit(pools.logit, scale))
    fold = _folds(pools.num_pools, 2, child_seed(seed, "halves"))
    fitting, measuring = logits.subset(fold == 0), logits.subset(fold == 1)
    nll_of = {method: _cross_validated_nll(fitting, method, seed) for method in METHODS}
    chosen = min(nll_of, key=lambda method: nll_of[method])
    maps = {method: _fitted(fitting, method) for method in METHODS}
    fitted_on = pools.subset(fold == 0).logit
    return Calibrator(
        method=chosen,
        scale=scale,
        map=maps[chosen],
        lowest=float(fitted_on.min()),
        highest=float(fitted_on.max()),
        num_fitted=fitting.num_pools,
        num_measured=measuring.num_pools,
        metrics={
            method: _measured(replace(measuring, prob=fitted.apply(measuring.logit)), seed)
            for method, fitted in maps.items()
        },
    )


def _check(pools: PoolScores) -> None:
    num_right, num_pairs = int(pools.label.sum()), len(pools.label)
    if not 0 < num_right < num_pairs:
        raise DataError(
            f"all {num_pairs} labels are {int(num_right > 0)}", "Expected right and wrong candidates.", field="label"
        )
    if pools.num_pools < MIN_QUERIES:
        raise DataError(
            f"found {pools.num_pools} queries",
            f"Calibration needs at least {MIN_QUERIES}: one half fits, the other measures. Label more of them.",
        )


def _folds(num_pools: int, num_folds: int, seed: int) -> IntArray:
    return np.random.default_rng(seed).permutation(np.arange(num_pools) % num_folds)


def _cross_validated_nll(fitting: PoolScores, method: str, seed: int) -> float:
    fold = _folds(fitting.num_pools, _NUM_FOLDS, child_seed(seed, "folds"))
    prob = np.zeros(len(fitting.logit))
    for held_out in range(_NUM_FOLDS):
        fitted = _fitted(fitting.subset(fold != held_out), method)
        is_held_out = fold[fitting.pool] == held_out
        prob[is_held_out] = fitted.apply(fitting.logit[is_held_out])
    return nll(prob, fitting.label)


def _fitted(pools: PoolScores, method: str) -> AffineMap | IsotonicMap:
    config = METHODS[method]
    if config is None:
        return AffineMap(slope=1.0, offset=0.0)
    return config.build().fit(pools.logit, pools.label)


def _measured(pools: PoolScores, seed: int) -> dict[str, Measured]:
    measured = measure(Evaluation(pools), {name: find_metric(name) for name in METRICS}, seed=seed)
    return {name: Measured(value=value, low=ends.low, high=ends.high) for name, (value, ends) in measured.items()}
