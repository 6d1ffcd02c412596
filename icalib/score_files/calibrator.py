"""Calibrators of other rankers' scores: plain numbers, fitted on one half of the queries and measured on the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field, FiniteFloat
from scipy.special import logit

from icalib.calibration.calibrator import AbstractCalibrator, Isotonic, Platt, PoolSoftmax, Temperature
from icalib.calibration.fitted import AffineMap, IsotonicMap, PoolSoftmaxMap
from icalib.calibration.none_of_these import NoneOfThese, fit_none_of_these, with_singles
from icalib.core.component import Settings, validated
from icalib.core.errors import DamagedFileError, DataError, RunFolderError, SettingError
from icalib.core.files import content_digest, read_json, reading, write_json
from icalib.core.seeding import child_seed
from icalib.core.storage import location
from icalib.metrics.calibration import PROB_CLIP, nll
from icalib.metrics.catalogue import find_metric
from icalib.metrics.metric import Evaluation
from icalib.metrics.pairs import FloatArray, IntArray, PoolScores
from icalib.metrics.summary import measure

CALIBRATOR_FILE = "calibrator.json"
_CHECKSUM = "checksum"
_CURE = f"Run its `icalib calibrate` command again; if you edited it, remove `{_CHECKSUM}`."

Scale = Literal["probability", "logit"]
"""What scores are. `probability`: from 0 to 1, as rankers return them after a sigmoid; `logit`: any other numbers."""
METRICS = ("NLL", "ECE", "ECE_top1", "Brier")
MIN_QUERIES = 20
MIN_ANSWERABLE = 10  # with a right candidate, so that the half that fits has one in each of its folds
UNCHANGED = "none"  # scores as they are: probabilities themselves, or the sigmoid of anything else
OF_QUERIES = "pool-softmax"  # fitted where no query has several right candidates
MIN_EITHER = 14  # queries with, and without, a right candidate: 7 in a half, of which four of five folds have 5 or more
_ROUNDING = 1e-9  # of means of equal scores
_MANY_LOWER = 2 / 3  # where chance alone decides, exceeded in 17 % of files of 10 queries, and 6 % of 20
METHODS: Mapping[str, AbstractCalibrator.Config | None] = MappingProxyType(
    {
        UNCHANGED: None,
        "temperature": Temperature.Config(),
        "platt": Platt.Config(),
        "isotonic": Isotonic.Config(),
        OF_QUERIES: PoolSoftmax.Config(),
    }
)  # what is fitted, the simplest first
_NUM_FOLDS = 5
USUAL_ENDS = (float(logit(PROB_CLIP)), float(logit(1 - PROB_CLIP)))
_Map = Annotated[AffineMap | IsotonicMap | PoolSoftmaxMap, Field(discriminator="kind")]


class _Fitted(NamedTuple):
    map: _Map
    none_of_these: NoneOfThese | None

    def prob(self, logit_N: FloatArray, sizes_P: IntArray) -> FloatArray:
        if self.none_of_these is None:
            return self.map.apply(logit_N, sizes_P)
        p_none = self.none_of_these.p_none(logit_N, np.append(0, np.cumsum(sizes_P)))
        return self.map.apply(logit_N, sizes_P, with_singles(p_none, self.map.of_pairs.apply(logit_N), sizes_P))


class Measured(Settings):
    """A metric's value with its 95 % interval over queries."""

    value: FiniteFloat
    low: FiniteFloat
    high: FiniteFloat


class Calibrator(Settings):
    """Maps scores of one ranker, on pools like those it was fitted on, to probabilities."""

    version: Literal[1] = 1
    method: str  # name of the chosen method
    scale: Scale
    map: _Map  # from logits to probabilities
    none_of_these: NoneOfThese | None = None  # what a softmax leaves for queries without a right candidate
    lowest: FiniteFloat  # lowest score that it was fitted on
    highest: FiniteFloat  # highest score that it was fitted on
    logit_ends: tuple[FiniteFloat, FiniteFloat] = USUAL_ENDS  # what probabilities of 0 and 1 become
    candidates: tuple[int, int] | None = None  # fewest and most of a query that it was fitted on
    num_fitted: int = Field(ge=1)  # queries that it was fitted on
    num_measured: int = Field(ge=1)  # queries that the metrics were measured on, none of which it was fitted on
    metrics: dict[str, dict[str, Measured]]  # by method and metric
    notes: tuple[str, ...] = ()  # what to change in the scores or their labels for better probabilities

    @property
    def reads_queries(self) -> bool:
        """Whether a probability depends on the other candidates of its query."""
        return isinstance(self.map, PoolSoftmaxMap)

    def prob(self, score: FloatArray, query: IntArray | None = None) -> FloatArray:
        """Return calibrated probabilities, [N]; see `as_logit` for errors.

        `query` has the number of each score's query, [N], in any order; without it each score is a pair by itself.
        """
        logits = as_logit(score, self.scale, self.logit_ends)
        if query is None:
            return self.map.of_pairs.apply(logits)
        order = np.argsort(query, kind="stable")
        prob = np.empty_like(logits)
        prob[order] = _Fitted(self.map, self.none_of_these).prob(logits[order], np.unique(query, return_counts=True)[1])
        return prob

    def save(self, folder: Path) -> None:
        """Write the calibrator into a folder, with a checksum by which damage is noticed."""
        value = self.model_dump(mode="json")
        write_json(folder / CALIBRATOR_FILE, {**value, _CHECKSUM: content_digest(value)})

    @classmethod
    def load(cls, folder: Path) -> Calibrator:
        """Read the calibrator in a folder; a RunFolderError if it has none, a DamagedFileError if it has changed."""
        path = folder / CALIBRATOR_FILE
        if not path.is_file():
            raise RunFolderError(
                f"{location(folder)} is not a calibrator: it has no {CALIBRATOR_FILE}. Name a folder that "
                "`icalib calibrate` wrote."
            )
        try:
            value = dict(read_json(path))
        except DamagedFileError as error:
            raise DamagedFileError(path, error.found, _CURE) from error
        written = value.pop(_CHECKSUM, None)
        with reading(path):
            is_same = written in (None, content_digest(value))
        if not is_same:
            raise DamagedFileError(path, "has other content than was written", _CURE)
        try:
            return validated(cls, value)
        except SettingError as error:
            raise DamagedFileError(path, f"is not a calibrator ({error})", _CURE) from error


def is_probability(score: FloatArray) -> npt.NDArray[np.bool_]:
    """Return whether each score is from 0 to 1, [N]."""
    return (score >= 0) & (score <= 1)


def detected_scale(score: FloatArray) -> Scale:
    """Return what scores are taken for: probabilities if all are from 0 to 1."""
    return "probability" if bool(is_probability(score).all()) else "logit"


def logit_ends(score: FloatArray) -> tuple[float, float]:
    """Return the logits of probabilities 0 and 1: ±16, as in float32, unless that of a score is further out.

    Scores may be tiny and yet in the right order, and files often have a zero that was rounded.
    """
    logits = logit(score[(score > 0) & (score < 1)])
    return float(logits.min(initial=USUAL_ENDS[0])), float(logits.max(initial=USUAL_ENDS[1]))


def as_logit(score: FloatArray, scale: Scale, ends: tuple[float, float]) -> FloatArray:
    """Return scores as calibrators take them, [N]; logits of probabilities are cut at `ends`."""
    if scale == "logit":
        return score
    if (wrong := score[~is_probability(score)]).size:
        raise DataError(
            f"found the score {wrong[0]:g} where probabilities from 0 to 1 were expected",
            "Give probabilities, or fit a calibrator with --scale logit on scores of any range.",
        )
    return np.clip(logit(score), *ends)


def calibrate(pools: PoolScores, scale: Scale | Literal["auto"] = "auto", *, seed: int = 1) -> Calibrator:
    """Fit on one half of the queries, drawn by `seed`, and measure on the other.

    `pools` have scores as `logit`; scale auto takes them for probabilities if all are from 0 to 1. A DataError says
    that there are too few queries, or too few with a right candidate, or no wrong pairs, or what `as_logit` refuses.
    """
    _check(pools)
    if scale == "auto":
        scale = detected_scale(pools.logit)
    fold = _folds(pools, 2, child_seed(seed, "halves"))
    fitted_on = pools.subset(fold == 0)
    ends = logit_ends(fitted_on.logit)
    logits = replace(pools, logit=as_logit(pools.logit, scale, ends))
    fitting, measuring = logits.subset(fold == 0), logits.subset(fold == 1)
    methods = [method for method in METHODS if method != OF_QUERIES or _allows_softmax(pools)]
    nll_of = {method: _cross_validated_nll(fitting, method, seed) for method in methods}
    chosen = min(nll_of, key=lambda method: nll_of[method])
    fits = {method: _fitted(fitting, method) for method in methods}
    return Calibrator(
        method=chosen,
        scale=scale,
        map=fits[chosen].map,
        none_of_these=fits[chosen].none_of_these,
        lowest=float(fitted_on.logit.min()),
        highest=float(fitted_on.logit.max()),
        logit_ends=ends,
        candidates=(int(fitted_on.sizes().min()), int(fitted_on.sizes().max())),
        num_fitted=fitting.num_pools,
        num_measured=measuring.num_pools,
        metrics={method: _measured(measuring, fitted, seed) for method, fitted in fits.items()},
        notes=tuple(_notes(pools)),
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
    if (num_answerable := int(pools.answerable.sum())) < MIN_ANSWERABLE:
        raise DataError(
            f"found {num_answerable} queries with a right candidate among {pools.num_pools}",
            f"Calibration needs at least {MIN_ANSWERABLE}: one half fits, the other measures. Label more of them.",
            field="label",
        )


def _allows_softmax(pools: PoolScores) -> bool:
    """Whether a query has one right candidate at most, and p_none can be fitted if some have none."""
    return _has_enough_of_either(pools) and _has_one_right_at_most(pools)


def _has_one_right_at_most(pools: PoolScores) -> bool:
    return bool((pools.pool_sum(pools.label) <= 1).all())


def _has_enough_of_either(pools: PoolScores) -> bool:
    num_none = int((~pools.answerable).sum())
    return num_none == 0 or min(num_none, pools.num_pools - num_none) >= MIN_EITHER


def _notes(pools: PoolScores) -> Iterator[str]:
    sizes, num_right = pools.sizes(), pools.pool_sum(pools.label)
    mixed = (num_right > 0) & (num_right < sizes)
    right = pools.pool_sum(pools.logit * pools.label)[mixed] / num_right[mixed]
    wrong = pools.pool_sum(pools.logit * (1 - pools.label))[mixed] / (sizes - num_right)[mixed]
    lower = right < wrong - _ROUNDING * np.abs(wrong)
    if lower.sum() > _MANY_LOWER * len(lower):
        yield (
            f"right candidates have lower scores than wrong ones in {lower.sum()} of {len(lower)} queries: if a low "
            "score is a good one (a distance), calibrate its negative"
        )
    if _has_one_right_at_most(pools) and not _has_enough_of_either(pools):
        num_none = int((~pools.answerable).sum())
        yield (
            f"{OF_QUERIES} was not tried: of {pools.num_pools} queries {num_none} have no right candidate. It needs "
            f"{MIN_EITHER} with and {MIN_EITHER} without one, or none without: label more, or leave those out if "
            "later queries always have a right candidate"
        )


def _folds(pools: PoolScores, num_folds: int, seed: int) -> IntArray:
    """Return the fold of each pool; those with a right candidate are spread evenly, and so are the others."""
    rng = np.random.default_rng(seed)
    in_turn = np.arange(pools.num_pools) % num_folds
    num_answerable = int(pools.answerable.sum())
    fold = np.empty_like(in_turn)
    fold[pools.answerable] = rng.permutation(in_turn[:num_answerable])
    fold[~pools.answerable] = rng.permutation(in_turn[num_answerable:])
    return fold


def _cross_validated_nll(fitting: PoolScores, method: str, seed: int) -> float:
    fold = _folds(fitting, _NUM_FOLDS, child_seed(seed, "folds"))
    prob = np.zeros(len(fitting.logit))
    for held_out in range(_NUM_FOLDS):
        fitted, held = _fitted(fitting.subset(fold != held_out), method), fitting.subset(fold == held_out)
        prob[fold[fitting.pool] == held_out] = fitted.prob(held.logit, held.sizes())
    return nll(prob, fitting.label)


def _fitted(pools: PoolScores, method: str) -> _Fitted:
    config = METHODS[method]
    if config is None:
        return _Fitted(AffineMap(slope=1.0, offset=0.0), None)
    found = config.build().fit(pools.logit, pools.label, sizes_P=pools.sizes())
    if method != OF_QUERIES or pools.answerable.all():
        return _Fitted(found, None)
    return _Fitted(found, fit_none_of_these(pools.logit, pools.offsets, pools.answerable))


def _measured(pools: PoolScores, fitted: _Fitted, seed: int) -> dict[str, Measured]:
    scores = replace(pools, prob=fitted.prob(pools.logit, pools.sizes()))
    measured = measure(Evaluation(scores), {name: find_metric(name) for name in METRICS}, seed=seed)
    return {name: Measured(value=value, low=ends.low, high=ends.high) for name, (value, ends) in measured.items()}
