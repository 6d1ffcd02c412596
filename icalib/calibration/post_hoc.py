"""Metrics of a run's predictions after post-hoc calibration."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import pyarrow as pa

from icalib.calibration.calibrator import AbstractCalibrator, Isotonic, Platt, PoolSoftmax, PriorShift, Temperature
from icalib.calibration.fitted import PoolSoftmaxMap, pair_logit
from icalib.core.component import short_name
from icalib.core.run_tables import METRIC_SCHEMA
from icalib.metrics.calibration import brier, ece, nll
from icalib.metrics.pairs import PoolScores
from icalib.metrics.ranking import top_candidate

POST_HOC: Mapping[str, AbstractCalibrator.Config | None] = MappingProxyType(
    {
        "null": None,
        **{short_name(each): each.Config() for each in (Temperature, Platt, Isotonic, PriorShift, PoolSoftmax)},
    }
)  # the calibrators that every run is evaluated with, by their values of `calibration`


def _of_pairs(metric: Callable[..., float]) -> Callable[[PoolScores], float]:
    return lambda scores: metric(scores.prob, scores.label)


def _top1(scores: PoolScores) -> float:
    top = top_candidate(scores)
    return ece(top.prob, top.hit)


_METRICS: Mapping[str, Callable[[PoolScores], float]] = MappingProxyType(
    {"ECE": _of_pairs(ece), "ECE_top1": _top1, "NLL": _of_pairs(nll), "Brier": _of_pairs(brier)}
)


def post_hoc_tag(metric: str, calibrator: str) -> str:
    """Return the name of a metric after post-hoc calibration, such as ECE@platt."""
    return f"{metric}@{calibrator}"


def post_hoc_metrics(
    validation: pa.Table, test: pa.Table, *, train_prior: float | None, focal_gamma: float = 0.0
) -> pa.Table:
    """Return ECE, ECE_top1, NLL and Brier score on test after each calibrator of POST_HOC.

    The table is of METRIC_SCHEMA, without intervals. `validation` and `test` are uncalibrated predictions
    (PREDICTION_SCHEMA). The prior shift needs `train_prior`, the fraction of right pairs in training, and
    `focal_gamma`, the loss's γ (0 for another loss); without it there is none.
    """
    known, scores = PoolScores.from_predictions(validation), PoolScores.from_predictions(test)
    known_logit, test_logit = (pair_logit(pools.prob, pools.logit) for pools in (known, scores))
    known_sizes, test_sizes = (pools.sizes() for pools in (known, scores))
    knows_none = known.answerable.all() or known.p_none is not None
    rows: list[tuple[str, str, float, float, float]] = []
    for name, config in POST_HOC.items():
        if isinstance(config, PriorShift.Config):
            if train_prior is None:
                continue
            config = PriorShift.Config(gamma=focal_gamma)
        after = scores
        if config is not None:
            fitted = config.build().fit(known_logit, known.label, train_prior=train_prior, sizes_P=known_sizes)
            if isinstance(config, PoolSoftmax.Config) and not (isinstance(fitted, PoolSoftmaxMap) and knows_none):
                continue  # the run would have Platt scaling
            after = replace(scores, prob=fitted.apply(test_logit, test_sizes, scores.p_none))
        rows += [
            ("test", post_hoc_tag(metric, name), measure(after), math.nan, math.nan)
            for metric, measure in _METRICS.items()
        ]
    return pa.table(list(zip(*rows, strict=True)), schema=METRIC_SCHEMA)
