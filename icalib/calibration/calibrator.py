"""Calibrators: fit a map from scores to probabilities on validation pairs.

These must be drawn like the test pairs: calibrators assume that the fraction of right pairs is the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, final

import numpy as np
from pydantic import Field, ValidationError
from scipy.special import expit, log_expit, logit
from typing_extensions import override

from icalib.calibration.fitted import AffineMap, FittedMap, FocalInverseMap, IsotonicMap, PoolSoftmaxMap
from icalib.core.component import Component, ComponentConfig, import_path, missing
from icalib.core.errors import DataError, SettingError
from icalib.core.text import first_problem, short_repr
from icalib.metrics.calibration import nll_from_logits
from icalib.metrics.pairs import FloatArray, IntArray, pool_softmax, sums_to_1

_MAPS = (AffineMap, IsotonicMap, FocalInverseMap, PoolSoftmaxMap)
_LARGEST_LOG_TEMPERATURE = math.log(1e3)
_LARGEST_LOG_SLOPE = 15.0
_LARGEST_SCORE = 1e100  # the squares of larger ones are infinite
_FAR = 1e3  # the ratio of a unit to those that a search from it doesn't find
_TIED = 1e-12  # candidates that differ by less, relative to their logits, differ by rounding


class Given(NamedTuple):
    """What some calibrators read besides logits and labels; see `AbstractCalibrator.fit`."""

    train_prior: float | None
    sizes_P: IntArray | None


class AbstractCalibrator(Component):
    """Base of calibrators, which fit a map from a model's logits to probabilities; subclasses implement `_fit`."""

    class Config(ComponentConfig):
        """Base of calibrators' settings."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def fit(
        self,
        logit_N: FloatArray,
        label_N: IntArray,
        *,
        train_prior: float | None = None,
        sizes_P: IntArray | None = None,
    ) -> FittedMap:
        """Fit on logits and labels (1 right, 0 wrong) of N validation pairs.

        `train_prior` is for `PriorShift` alone, and for `PoolSoftmax` the P pools' numbers of candidates, `sizes_P`.
        A DataError says that all pairs have the same label, or a score is not finite or huge.
        """
        num_right, num_pairs = int(label_N.sum()), len(label_N)
        if not 0 < num_right < num_pairs or not np.isfinite(logit_N).all():
            raise DataError(
                f"a calibrator can't be fitted on {num_pairs} pairs, {num_right} of them right, "
                f"{int((~np.isfinite(logit_N)).sum())} without a finite score",
                "Fit it on scored pools with right and wrong candidates.",
                field="logit",
            )
        largest = float(np.abs(logit_N).max())
        if largest > _LARGEST_SCORE:
            raise DataError(
                f"found a score of magnitude {largest:.3g}",
                f"Expected scores up to {_LARGEST_SCORE:g}: correct it, or divide all scores by one number.",
                field="score",
            )
        what = f"the calibrator `{import_path(type(self))}`"
        try:
            found: Any = self._fit(logit_N, label_N, Given(train_prior, sizes_P))
        except ValidationError as error:
            path, value, expected = first_problem(error)
            where = ".".join((error.title, *path))
            raise SettingError(f"{what} failed: {where}: {value}, expected {expected}. Correct it.") from error
        if not isinstance(found, _MAPS):
            maps = " or ".join(each.__name__ for each in _MAPS)
            raise SettingError(f"{what} returned {short_repr(found)}; expected {maps}. Return one of these.")
        return found

    def _fit(self, logit_N: FloatArray, label_N: IntArray, given: Given) -> FittedMap:
        raise missing(self, "_fit")


@final
class Temperature(AbstractCalibrator):
    """σ(f / T) with the T of the smallest negative log-likelihood (Guo et al. 2017); it can't fix a prior shift."""

    class Config(AbstractCalibrator.Config):
        """Temperature scaling has no settings."""

    @override
    def _fit(self, logit_N: FloatArray, label_N: IntArray, given: Given) -> AffineMap:
        return AffineMap(slope=_best_slope(logit_N, lambda scaled_N: nll_from_logits(scaled_N, label_N)), offset=0.0)


@final
class Platt(AbstractCalibrator):
    """σ(a f + b), a > 0, with smoothed targets (Platt 1999): temperature and prior shift in one."""

    class Config(AbstractCalibrator.Config):
        """Platt scaling has no settings."""

    @override
    def _fit(self, logit_N: FloatArray, label_N: IntArray, given: Given) -> AffineMap:
        return fit_affine(logit_N, label_N)


@final
class Isotonic(AbstractCalibrator):
    """The non-decreasing function with the smallest squared error (Zadrozny and Elkan 2002) to Platt's targets.

    With labels of 0 and 1 its ends would be certain, of however few pairs.
    """

    class Config(AbstractCalibrator.Config):
        """Isotonic regression has no settings."""

    @override
    def _fit(self, logit_N: FloatArray, label_N: IntArray, given: Given) -> IsotonicMap:
        from sklearn.isotonic import IsotonicRegression

        model = IsotonicRegression(y_min=0, y_max=1).fit(logit_N, smoothed_targets(label_N))
        return IsotonicMap(logits=tuple(model.X_thresholds_.tolist()), probs=tuple(model.y_thresholds_.tolist()))


@final
class PriorShift(AbstractCalibrator):
    """σ(f − logit π_train + logit π_test): corrects for another number of wrong pairs for each right one in training.

    π_test is the fraction of right pairs in validation (Saerens et al. 2002, Eq. 4). The shift is exact for calibrated
    logits: the bias of a focal loss is inverted first.
    """

    class Config(AbstractCalibrator.Config):
        """Settings of a prior shift."""

        gamma: float | None = Field(default=None, ge=0)
        """γ of the focal loss that the model was trained with, 0 for another loss. None is the γ of the method's
        `loss`, and 0 outside of a method."""

        def for_loss(self, gamma: float) -> PriorShift.Config:
            """Return the settings for a loss of γ; a ValueError if it isn't that of the settings."""
            if self.gamma not in (None, gamma):
                raise ValueError(
                    f"found a loss of γ = {gamma:g} (0 without a focal loss), expected {self.gamma:g}, which "
                    "prior-shift inverts. Set `calibration.gamma` to null, or use platt or temperature"
                )
            return self.model_copy(update={"gamma": gamma})

    @override
    def _fit(self, logit_N: FloatArray, label_N: IntArray, given: Given) -> AffineMap | FocalInverseMap:
        train_prior = given.train_prior
        if train_prior is None or not 0 < train_prior < 1:
            raise SettingError(
                f"a prior shift needs the fraction of right pairs in training; found {train_prior}, expected a number "
                "between 0 and 1, e.g. 0.5 for one wrong candidate for each right one. Use platt for untrained methods."
            )
        offset = float(logit(label_N.mean()) - logit(train_prior))
        if self.config.gamma:
            return FocalInverseMap(gamma=self.config.gamma, offset=offset)
        return AffineMap(slope=1.0, offset=offset)


@final
class PoolSoftmax(AbstractCalibrator):
    """softmax(a f) over a pool, with the a that makes right candidates most likely; a pool's level has no effect.

    f are the logits; or the logarithms of their probabilities, where these are a softmax over each pool already: they
    sum to 1, and a = 1 leaves them as they are.

    Pools without a right candidate don't count. One pool more, whose candidates are all as likely right, smooths the
    fit: without it a few pools that are all ranked right have probabilities of 1. Where a pool has several right
    candidates it is Platt scaling, as it is for pairs whose pool isn't known.
    """

    class Config(AbstractCalibrator.Config):
        """A softmax over pools has no settings."""

    @override
    def _fit(self, logit_N: FloatArray, label_N: IntArray, given: Given) -> PoolSoftmaxMap | AffineMap:
        sizes_P, of_pairs = given.sizes_P, fit_affine(logit_N, label_N)
        if sizes_P is None:
            return of_pairs
        starts_P = np.cumsum(sizes_P) - sizes_P
        num_right_P = np.add.reduceat(label_N, starts_P)
        if (num_right_P > 1).any():
            return of_pairs
        uniform_N = np.repeat(num_right_P / sizes_P, sizes_P)  # 0 in pools without a right candidate
        target_N = label_N + uniform_N / num_right_P.sum()

        def loss(scaled_N: FloatArray) -> float:
            return -float(target_N @ np.log(np.maximum(pool_softmax(scaled_N, sizes_P), 1e-300)))

        of_log_probs = sums_to_1(expit(logit_N), sizes_P)
        f_N = log_expit(logit_N) if of_log_probs else logit_N
        level_P = np.add.reduceat(f_N, starts_P) / sizes_P
        slope = _best_slope(f_N - np.repeat(level_P, sizes_P), loss)
        return PoolSoftmaxMap(slope=slope, of_log_probs=of_log_probs, pairs=of_pairs)


def _best_slope(logit_N: FloatArray, loss: Callable[[FloatArray], float]) -> float:
    """Return the a with the smallest loss of a f, which is convex in a and so unimodal in ln a."""
    from scipy.optimize import minimize_scalar  # slow to import, and predictions don't fit

    def search(unit: float) -> tuple[float, float]:
        scaled_N = logit_N / unit
        best: Any = minimize_scalar(
            lambda log_temperature: loss(scaled_N * np.exp(-log_temperature)),
            bounds=(-_LARGEST_LOG_TEMPERATURE, _LARGEST_LOG_TEMPERATURE),  # T is infinite if all pairs are ranked wrong
            method="bounded",
            options={"xatol": 1e-8},
        )
        return float(best.fun), math.exp(-best.x) / unit

    # scores of other rankers have any unit: the median, so that outliers don't decide it, and larger ones that it is
    # far from, as most candidates of a file may be equal but for rounding
    sizes = np.abs(logit_N[logit_N != 0])
    median, *others = np.quantile(sizes, (0.5, 0.95, 1.0)).tolist() if len(sizes) else (1.0,)
    return min(map(search, (median, *(unit for unit in others if unit > _FAR * median))))[1]


def smoothed_targets(label_N: IntArray) -> FloatArray:
    """Return Platt's targets of right and wrong pairs, with which separable labels have a finite best fit; [N]."""
    is_right = label_N == 1
    right, wrong = int(is_right.sum()), int((~is_right).sum())
    return np.where(is_right, (right + 1) / (right + 2), 1 / (wrong + 2))


def deviation(values_N: FloatArray) -> float:
    """Return the standard deviation of values; 0 if they differ by rounding, as a slope by it would have no digits."""
    return float(values_N.std()) if np.ptp(values_N) > _TIED * np.abs(values_N).max() else 0.0


def fit_affine(logit_N: FloatArray, label_N: IntArray) -> AffineMap:
    """Fit σ(a f + b), a > 0, with smoothed targets (Platt 1999) to scores and labels [N] by the smallest mean NLL."""
    from scipy.optimize import minimize  # slow to import, and predictions don't fit

    target_N = smoothed_targets(label_N)
    # standardised, so that one start and one tolerance suit the scores of every model
    mean = float(logit_N.mean())
    scale = deviation(logit_N) or abs(mean) or 1.0
    f_N = (logit_N - mean) / scale

    def nll_and_gradient(parameters: FloatArray) -> tuple[float, FloatArray]:
        slope, offset = math.exp(parameters[0]), parameters[1]
        z_N = slope * f_N + offset
        residual_N = (expit(z_N) - target_N) / len(z_N)
        nll = float((np.logaddexp(0, z_N) - target_N * z_N).mean())
        return nll, np.array([slope * (residual_N @ f_N), residual_N.sum()])

    best = minimize(
        nll_and_gradient,
        np.array([0.0, logit(target_N.mean())]),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-_LARGEST_LOG_SLOPE, _LARGEST_LOG_SLOPE), (None, None)],
        options={"ftol": 1e-15, "gtol": 1e-9},
    )
    slope = math.exp(best.x[0]) / scale
    return AffineMap(slope=slope, offset=float(best.x[1]) - slope * mean)
