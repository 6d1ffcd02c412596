"""What every calibrator must do; a new one, of icalib or of a package outside of it, is discovered."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.discovery import discovered
from pydantic import TypeAdapter
from scipy.special import expit

from icalib.calibration.calibrator import AbstractCalibrator
from icalib.calibration.fitted import AnyMap, FittedMap
from icalib.core.errors import DataError

CALIBRATORS = {owner.__name__: owner for owner in discovered(AbstractCalibrator)}
GRID = np.concatenate([[-1e3, -60.0], np.linspace(-12, 12, 241), [60.0, 1e3]])


@pytest.fixture(params=CALIBRATORS)
def calibrator(request: pytest.FixtureRequest) -> AbstractCalibrator:
    return CALIBRATORS[request.param].Config().build()


SIZES = np.full(150, 3)


def validation_pools() -> tuple[np.ndarray, np.ndarray]:
    """Scores of an over-confident model, and labels: 150 pools of a right and two wrong candidates."""
    rng = np.random.default_rng(0)
    logit = rng.normal(-1, 2, 600)
    is_right = rng.random(600) < expit(0.6 * logit)
    right, wrong = logit[is_right][:150], logit[~is_right][:300]
    return np.column_stack([right, wrong.reshape(150, 2)]).ravel(), np.tile([1, 0, 0], 150)


def fit(calibrator: AbstractCalibrator) -> FittedMap:
    return calibrator.fit(*validation_pools(), train_prior=0.5, sizes_P=SIZES)


def apply(fitted: FittedMap) -> np.ndarray:
    """Probabilities of the grid as one pool."""
    return fitted.apply(GRID, np.array([len(GRID)]))


def test_the_map_gives_probabilities_that_never_fall(calibrator: AbstractCalibrator) -> None:
    prob = apply(fit(calibrator))
    assert ((prob >= 0) & (prob <= 1)).all()
    assert (np.diff(prob) >= 0).all()
    assert prob[0] < prob[-1]


def test_the_map_survives_a_file(calibrator: AbstractCalibrator) -> None:
    fitted = fit(calibrator)
    adapter: TypeAdapter[AnyMap] = TypeAdapter(AnyMap)
    read = adapter.validate_json(adapter.dump_json(fitted))
    assert read == fitted
    np.testing.assert_array_equal(apply(read), apply(fitted))


def test_the_order_of_pools_changes_nothing(calibrator: AbstractCalibrator) -> None:
    logit, label = validation_pools()
    order = (3 * np.random.default_rng(1).permutation(150)[:, None] + np.arange(3)).ravel()
    shuffled = calibrator.fit(logit[order], label[order], train_prior=0.5, sizes_P=SIZES)
    np.testing.assert_allclose(apply(shuffled), apply(fit(calibrator)), rtol=1e-4, atol=1e-6)


def test_the_map_of_a_pool_depends_on_that_pool_alone(calibrator: AbstractCalibrator) -> None:
    fitted, sizes = fit(calibrator), np.array([100, 1, len(GRID) - 101])
    alone = [fitted.apply(pool, np.array([len(pool)])) for pool in np.split(GRID, [100, 101])]
    np.testing.assert_allclose(fitted.apply(GRID, sizes), np.concatenate(alone))


@pytest.mark.parametrize(
    ("logit", "label"), [([0.0, 1.0], [1, 1]), ([0.0, 1.0], [0, 0]), ([0.0, np.nan], [0, 1]), ([np.inf, 0.0], [1, 0])]
)
def test_pairs_that_cannot_be_fitted_are_refused(
    calibrator: AbstractCalibrator, logit: list[float], label: list[int]
) -> None:
    with pytest.raises(DataError, match="can't be fitted on 2 pairs"):
        calibrator.fit(np.array(logit), np.array(label), train_prior=0.5)
