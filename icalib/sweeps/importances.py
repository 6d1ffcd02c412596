"""Importance of each setting for a metric, over the trials of a sweep."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.importance import FanovaImportanceEvaluator

optuna.logging.set_verbosity(optuna.logging.WARNING)

MIN_TRIALS = 10
"""Fewer trials say little about several settings."""

_SEED = 0  # of the forest


def importances(params: Sequence[Mapping[str, Any]], values: Sequence[float]) -> dict[str, float]:
    """Return the fraction of the values' variance that each setting explains, the largest first; they add up to 1.

    Functional ANOVA over a random forest (Hutter, Hoos & Leyton-Brown, 2014), as Optuna implements it. Only settings
    that every trial has, with more than one value, are compared.

    Args:
        params: settings by name, one mapping a trial; values are JSON-able.
        values: the trials' values of one metric.

    Returns:
        An empty dict where there are fewer than MIN_TRIALS trials, fewer than two settings, or all values are equal.
    """
    names = _varied_in_all(params)
    if len(params) < MIN_TRIALS or len(names) < 2 or len(set(values)) < 2:
        return {}
    columns = {name: _column([one[name] for one in params]) for name in names}
    distributions = {name: _distribution(column) for name, column in columns.items()}
    study = optuna.create_study()
    for index, value in enumerate(values):
        choices = {name: column[index] for name, column in columns.items()}
        study.add_trial(optuna.create_trial(params=choices, distributions=distributions, value=value))
    found = optuna.importance.get_param_importances(study, evaluator=FanovaImportanceEvaluator(seed=_SEED))
    return {name: float(fraction) for name, fraction in found.items()}


def spans_decades(values: Sequence[Any]) -> bool:
    """Return whether a logarithmic axis suits values better: positive numbers over a decade or more, even by ratio.

    Example:
        >>> spans_decades([1e-5, 3e-5, 1e-4]), spans_decades([0.1, 2.0, 4.0]), spans_decades([1, 2, 3])
        (True, False, False)
    """
    if not all(_is_number(value) and value > 0 for value in values):
        return False
    minimum, maximum, middle = min(values), max(values), median(values)
    by_ratio, by_difference = math.sqrt(minimum * maximum), (minimum + maximum) / 2
    return maximum >= 10 * minimum and middle / by_ratio < by_difference / middle


def _varied_in_all(params: Sequence[Mapping[str, Any]]) -> list[str]:
    shared = [name for name in (params[0] if params else ()) if all(name in one for one in params)]
    return [name for name in shared if len({repr(one[name]) for one in params}) > 1]


def _column(values: Sequence[Any]) -> list[Any]:
    """Return numbers, as logarithms where they span decades (the evaluator weighs a range evenly), or else texts.

    Choices become texts, because lists and nulls aren't allowed and true equals 1.
    """
    if not all(_is_number(value) for value in values):
        return [repr(value) for value in values]
    return [math.log10(value) for value in values] if spans_decades(values) else [float(value) for value in values]


def _distribution(column: Sequence[Any]) -> BaseDistribution:
    if isinstance(column[0], float):
        return FloatDistribution(min(column), max(column))
    return CategoricalDistribution(sorted(set(column)))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
