from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.special import expit

from icalib.calibration.fitted import AffineMap, AnyMap, IsotonicMap, PoolSoftmaxMap, pair_logit, prob_logit
from icalib.core.component import Settings, validated
from icalib.core.errors import SettingError


class Kept(Settings):
    calibration: AnyMap | None


@pytest.mark.parametrize(
    "values", [{"kind": "spline"}, {"kind": "affine", "slope": -1, "offset": 0}, {"kind": "focal-inverse", "gamma": -1}]
)
def test_an_invalid_map_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match="calibration"):
        validated(Kept, {"calibration": values})


@pytest.mark.parametrize("prob", [0.0, 1e-300, 0.3, 1.0])
def test_logits_of_probabilities_are_finite(prob: float) -> None:
    value = prob_logit(np.array([prob]))
    assert np.isfinite(value).all()
    np.testing.assert_allclose(expit(value), prob, atol=1e-15)


def test_saturated_pairs_keep_their_logits_on_both_sides() -> None:
    logits = np.array([-700.0, -300.0, -40.0, -1.0, 0.0, 1.0, 40.0, 300.0, 700.0])
    np.testing.assert_array_equal(pair_logit(expit(logits), logits), logits)
    for prob in (0.0, 1.0):
        assert abs(prob_logit(np.array([prob]))) == pytest.approx(36.74, abs=0.01)


def test_a_mean_over_samples_has_the_logit_of_the_mean_probability() -> None:
    samples = np.array([[-2.0, 50.0, -50.0], [4.0, 60.0, -60.0]])
    found = pair_logit(expit(samples).mean(0), samples.mean(0))
    assert found[0] == pytest.approx(np.log(expit(samples[:, 0]).mean() / expit(-samples[:, 0]).mean()))
    np.testing.assert_allclose(found[1:], [55, -55])  # the probabilities are 1 and 0 to every digit


def test_a_candidate_without_others_has_the_probability_of_a_pair() -> None:
    """A softmax over it would be 1; with a probability that none is right it has what that one leaves."""
    of_pairs = AffineMap(slope=2.0, offset=-1.0)
    logit, sizes = np.array([0.3, 1.0, 0.0]), np.array([1, 2])
    prob = PoolSoftmaxMap(slope=1.0, pairs=of_pairs).apply(logit, sizes)
    np.testing.assert_allclose(prob, [expit(-0.4), expit(1.0), expit(-1.0)])
    prob = PoolSoftmaxMap(slope=1.0, pairs=of_pairs).apply(logit, sizes, np.array([0.4, 0.1]))
    np.testing.assert_allclose(prob, [0.6, 0.9 * expit(1.0), 0.9 * expit(-1.0)])


def test_an_isotonic_map_has_a_probability_for_each_logit() -> None:
    with pytest.raises(ValidationError, match="found 2 logits and 3 probs"):
        IsotonicMap(logits=(0.0, 1.0), probs=(0.1, 0.2, 0.3))
