from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from icalib.sweeps.importances import MIN_TRIALS, importances, spans_decades


def _params(num_trials: int = 40) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    return [
        {
            "rate": float(10 ** rng.uniform(-5, -2)),
            "share": float(rng.uniform()),
            "kernel": str(rng.choice(["rbf", "linear"])),
            "fixed": 3,
        }
        for _ in range(num_trials)
    ]


def test_what_moves_the_metric_matters_most() -> None:
    params = _params()
    by_rate = importances(params, [np.log10(one["rate"]) + 0.1 * one["share"] for one in params])
    by_kernel = importances(params, [float(one["kernel"] == "rbf") + 0.1 * one["share"] for one in params])
    assert next(iter(by_rate)) == "rate"
    assert next(iter(by_kernel)) == "kernel"
    assert by_rate.keys() == {"rate", "share", "kernel"}
    assert sum(by_rate.values()) == pytest.approx(1)


def test_same_trials_give_the_same_shares() -> None:
    params = _params(12)
    values = [one["share"] for one in params]
    assert importances(params, values) == importances(params, values)


def test_settings_that_not_every_trial_has_are_not_weighed() -> None:
    params = _params()
    values = [one["rate"] for one in params]
    del params[5]["share"]
    assert "share" not in importances(params, values)


@pytest.mark.parametrize("choices", [[True, False, 1], [[1, 2], [3], None]])
def test_choices_may_be_anything_that_json_has(choices: list[Any]) -> None:
    params = [{"a": choices[place % 3], "b": place} for place in range(15)]
    assert importances(params, [float(place % 3) for place in range(15)])["a"] > 0.5


def test_too_little_to_tell_gives_nothing() -> None:
    params = _params()
    values = [one["rate"] for one in params]
    assert importances(params[: MIN_TRIALS - 1], values[: MIN_TRIALS - 1]) == {}
    assert importances([{"rate": one["rate"]} for one in params], values) == {}
    assert importances(params, [0.5] * len(params)) == {}
    assert importances([], []) == {}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1e-5, 3e-5, 1e-4], True),
        ([1, 2, 4, 8, 16], True),
        ([0.1, 0.2, 0.5], False),
        ([0.1, 2.0, 3.0, 4.0], False),
        ([0.0, 1e-4, 1.0], False),
        (["rbf", "linear"], False),
        ([True, 10], False),
    ],
)
def test_logarithmic_axes_are_for_values_even_by_ratio(values: list[Any], expected: bool) -> None:
    assert spans_decades(values) == expected
