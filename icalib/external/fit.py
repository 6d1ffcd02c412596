"""Calibrate another ranker's scores: one half of the pools fits and chooses everything, the other half measures it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

import numpy as np
from pydantic import Field

from icalib.calibration.calibrator import AbstractCalibrator, Isotonic, Platt, Temperature
from icalib.calibration.fitted import AffineMap
from icalib.core.component import Settings
from icalib.core.errors import DataError
from icalib.core.seeding import child_seed
from icalib.external.calibrator import Acceptance, AnswerSets, Calibrator, FittedRange, ScoreMap, applied
from icalib.external.measures import (
    AcceptanceReport,
    Row,
    SetReport,
    measured,
    measured_acceptance,
    measured_sets,
    nll_p_value,
)
from icalib.external.pool_features import PoolFeatureMap, fit_pool_features
from icalib.external.scale import Scale, as_logit, as_prob, detected_scale
from icalib.metrics.calibration import nll
from icalib.metrics.conformal import fit_conformal
from icalib.metrics.pairs import FloatArray, IntArray, PoolScores

MIN_POOLS = 20
_FEWEST_ACCEPTED = 10

UNCHANGED = "none"
"""Scores as they are: probabilities themselves, or the sigmoid of anything else."""


class CalibrationSettings(Settings):
    """How scores are calibrated."""

    seed: int = 1
    """Seed of the two halves and of the folds."""
    precision: float = Field(default=0.95, gt=0, lt=1)
    """Precision that accepted pairs are to have."""
    coverage: float = Field(default=0.9, gt=0, lt=1)
    """Probability that an answer set contains a right candidate."""
    scale: Literal["auto", "probability", "logit"] = "auto"
    """What scores are; auto: probabilities if all are from 0 to 1."""
    num_folds: int = Field(default=5, ge=2)
    """Folds of the fitting half, by which the calibrator is chosen."""


def _unchanged(logit: FloatArray, label: IntArray, offsets: IntArray) -> ScoreMap:
    return AffineMap(slope=1.0, offset=0.0)


def _of_pairs(config: AbstractCalibrator.Config) -> Callable[[FloatArray, IntArray, IntArray], ScoreMap]:
    def fit(logit: FloatArray, label: IntArray, offsets: IntArray) -> ScoreMap:
        return config.build().fit(logit, label)

    return fit


METHODS: Mapping[str, Callable[[FloatArray, IntArray, IntArray], ScoreMap]] = MappingProxyType(
    {
        UNCHANGED: _unchanged,
        "temperature": _of_pairs(Temperature.Config()),
        "platt": _of_pairs(Platt.Config()),
        "isotonic": _of_pairs(Isotonic.Config()),
        "pool-features": fit_pool_features,
    }
)
"""Fits a map on logits, labels and the pools' offsets; the simplest calibrator first."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """A fitted calibrator and what it is like on pools that fitted and chose nothing.

    Attributes:
        calibrator: the chosen one, with its threshold and its answer sets.
        rows: each calibrator's metrics on the report half, in the order of METHODS.
        fold_nll: each calibrator's NLL in cross-validation on the fitting half, by which one was chosen.
        before: the report half with uncalibrated probabilities.
        after: the same with calibrated ones.
        acceptance: what the threshold does on the report half, or why there is none.
        sets: what the answer sets do on the report half, or why there are none.
        num_fitted: pools of the fitting half.
        p_value: of the paired permutation test that the chosen calibrator's NLL is that of before; 1 if none is chosen.
    """

    calibrator: Calibrator
    rows: tuple[Row, ...]
    fold_nll: Mapping[str, float]
    before: PoolScores
    after: PoolScores
    acceptance: AcceptanceReport
    sets: SetReport
    num_fitted: int
    p_value: float


def calibrate(pools: PoolScores, settings: CalibrationSettings) -> Calibration:
    """Fit on one half of the pools and measure on the other.

    Args:
        pools: scores as logits, with known labels; pools may have several right candidates or none.
        settings: see `CalibrationSettings`.

    Raises:
        DataError: fewer than MIN_POOLS pools, or a half or fold without right or without wrong pairs.
    """
    num_pools = pools.num_pools
    if num_pools < MIN_POOLS:
        raise DataError(
            f"found {num_pools} labelled pools",
            f"Calibration needs at least {MIN_POOLS}: one half fits, the other reports. Label more pools.",
        )
    scale = settings.scale if settings.scale != "auto" else detected_scale(pools.logit)
    _check_scale(pools.logit, scale)
    order = np.random.default_rng(child_seed(settings.seed, "halves")).permutation(num_pools)
    fitting, report = (pools.subset(np.isin(np.arange(num_pools), half)) for half in np.array_split(order, 2))
    logit = as_logit(fitting.logit, scale)
    maps = {name: fit(logit, fitting.label, fitting.offsets) for name, fit in METHODS.items()}
    out_of_fold = _out_of_fold(fitting, logit, settings)
    fold_nll = {name: nll(prob, fitting.label) for name, prob in out_of_fold.items()}
    chosen = min(fold_nll, key=lambda name: fold_nll[name])
    platt = maps["platt"]
    assert isinstance(platt, AffineMap)
    sets, sets_missing = _fit_sets(fitting, logit, platt.slope, settings.coverage)
    acceptance, best_precision = _fit_acceptance(fitting, out_of_fold[chosen], maps[chosen], scale, settings.precision)
    calibrator = Calibrator(
        method=chosen,
        scale=scale,
        map=maps[chosen],
        fitted_on=_range(fitting),
        acceptance=acceptance,
        sets=sets,
    )
    rows, by_method = _rows(report, maps, scale, settings.seed)
    return Calibration(
        calibrator=calibrator,
        rows=rows,
        fold_nll=fold_nll,
        before=by_method[UNCHANGED],
        after=by_method[chosen],
        acceptance=measured_acceptance(by_method[chosen], acceptance, settings.precision, best_precision),
        sets=measured_sets(report, as_logit(report.logit, scale), sets, settings.coverage, sets_missing),
        num_fitted=fitting.num_pools,
        p_value=1.0 if chosen == UNCHANGED else nll_p_value(by_method[chosen], by_method[UNCHANGED], settings.seed),
    )


def _check_scale(score: FloatArray, scale: Scale) -> None:
    if scale == "probability" and (wrong := (score < 0) | (score > 1)).any():
        raise DataError(
            f"found the score {score[wrong][0]:g} ({int(wrong.sum())} outside of 0 to 1)",
            "Probabilities are from 0 to 1; choose the scale logit for other scores.",
        )


def _out_of_fold(fitting: PoolScores, logit: FloatArray, settings: CalibrationSettings) -> dict[str, FloatArray]:
    """Return the probabilities that each calibrator gives the pairs of a fold when it is fitted on the others, [N]."""
    rng = np.random.default_rng(child_seed(settings.seed, "folds"))
    fold = rng.permutation(np.arange(fitting.num_pools) % settings.num_folds)
    prob = {name: np.zeros(len(logit)) for name in METHODS}
    pools = replace(fitting, logit=logit)
    for held_out in range(settings.num_folds):
        known, others = pools.subset(fold != held_out), pools.subset(fold == held_out)
        of_others = fold[fitting.pool] == held_out
        for name, fit in METHODS.items():
            fitted = fit(known.logit, known.label, known.offsets)
            prob[name][of_others] = applied(fitted, others.logit, others.offsets)
    return prob


def _range(fitting: PoolScores) -> FittedRange:
    sizes = np.diff(fitting.offsets)
    return FittedRange(
        lowest=float(fitting.logit.min()),
        highest=float(fitting.logit.max()),
        fewest_candidates=int(sizes.min()),
        most_candidates=int(sizes.max()),
        fraction_right=float(fitting.label.mean()),
    )


def _fit_sets(
    fitting: PoolScores, logit: FloatArray, sharpness: float, coverage: float
) -> tuple[AnswerSets | None, str]:
    """Return the answer sets, or why there are none; pools without a right candidate say nothing about them."""
    scores = replace(fitting, logit=sharpness * logit).subset(fitting.answerable)
    try:
        return AnswerSets(sharpness=sharpness, threshold=fit_conformal(scores, coverage)), ""
    except DataError as error:
        return None, str(error)


def _fit_acceptance(
    fitting: PoolScores, out_of_fold: FloatArray, fitted: ScoreMap, scale: Scale, precision: float
) -> tuple[Acceptance | None, float]:
    """Return the lowest threshold with a precision, and the highest precision of any threshold.

    Out-of-fold probabilities are those that the pairs would get if they were new. A threshold that accepts fewer pairs
    than 1 / (1 − precision) is not considered: by so few a precision can't be told from a higher one.
    """
    fewest = max(_FEWEST_ACCEPTED, math.ceil(1 / (1 - precision) - 1e-9))
    order = np.argsort(-out_of_fold, kind="stable")
    prob, right = out_of_fold[order], np.cumsum(fitting.label[order])
    accepted = np.arange(1, len(order) + 1)
    last_of_tie = np.append(prob[1:] != prob[:-1], True)
    considered = np.flatnonzero(last_of_tie & (accepted >= fewest))
    reached = right[considered] / accepted[considered]
    enough = considered[reached >= precision]
    if not enough.size:
        return None, float(reached.max(initial=0.0))
    threshold = float(prob[enough[-1]])
    score = None if isinstance(fitted, PoolFeatureMap) else _lowest_score(fitting.logit, fitted, threshold, scale)
    return Acceptance(precision=precision, prob=threshold, score=score), float(reached.max())


def _lowest_score(score: FloatArray, fitted: ScoreMap, prob: float, scale: Scale) -> float | None:
    """Return the lowest score in the range of some scores that has a probability, by bisection; None if none has it."""
    one_pool = np.array([0, 1], np.int64)

    def reaches(one: float) -> bool:
        return bool(applied(fitted, as_logit(np.array([one]), scale), one_pool)[0] >= prob)

    low, high = float(score.min()), float(score.max())
    if reaches(low) or not reaches(high):
        return low if reaches(low) else None
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return high


def _rows(
    report: PoolScores, maps: Mapping[str, ScoreMap], scale: Scale, seed: int
) -> tuple[tuple[Row, ...], dict[str, PoolScores]]:
    """Return each calibrator's metrics, and the pools with its probabilities."""
    logit = as_logit(report.logit, scale)
    found: dict[str, PoolScores] = {}
    for name, fitted in maps.items():
        prob = as_prob(report.logit, scale) if name == UNCHANGED else applied(fitted, logit, report.offsets)
        found[name] = replace(report, prob=prob)
    return tuple(measured(name, pools, found[UNCHANGED], seed) for name, pools in found.items()), found
