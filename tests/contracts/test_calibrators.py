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


def validation_pairs(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Scores of an over-confident model, and labels of which about a third are right."""
    rng = np.random.default_rng(seed)
    logit = rng.normal(-1, 2, 600)
    return logit, (rng.random(600) < expit(0.6 * logit)).astype(np.int64)


def fit(calibrator: AbstractCalibrator) -> FittedMap:
    return calibrator.fit(*validation_pairs(), train_prior=0.5)


def test_the_map_gives_probabilities_that_never_fall(calibrator: AbstractCalibrator) -> None:
    prob = fit(calibrator).apply(GRID)
    assert ((prob >= 0) & (prob <= 1)).all()
    assert (np.diff(prob) >= 0).all()
    assert prob[0] < prob[-1]


def test_the_map_survives_a_file(calibrator: AbstractCalibrator) -> None:
    fitted = fit(calibrator)
    adapter: TypeAdapter[AnyMap] = TypeAdapter(AnyMap)
    read = adapter.validate_json(adapter.dump_json(fitted))
    assert read == fitted
    np.testing.assert_array_equal(read.apply(GRID), fitted.apply(GRID))


def test_the_order_of_pairs_changes_nothing(calibrator: AbstractCalibrator) -> None:
    logit, label = validation_pairs()
    order = np.random.default_rng(1).permutation(len(logit))
    shuffled = calibrator.fit(logit[order], label[order], train_prior=0.5)
    np.testing.assert_allclose(shuffled.apply(GRID), fit(calibrator).apply(GRID), rtol=1e-4, atol=1e-6)


def test_the_map_of_a_pair_depends_on_that_pair_alone(calibrator: AbstractCalibrator) -> None:
    fitted = fit(calibrator)
    np.testing.assert_allclose([fitted.apply(GRID[i : i + 1])[0] for i in range(len(GRID))], fitted.apply(GRID))


@pytest.mark.parametrize(
    ("logit", "label"), [([0.0, 1.0], [1, 1]), ([0.0, 1.0], [0, 0]), ([0.0, np.nan], [0, 1]), ([np.inf, 0.0], [1, 0])]
)
def test_pairs_that_cannot_be_fitted_are_refused(
    calibrator: AbstractCalibrator, logit: list[float], label: list[int]
) -> None:
    with pytest.raises(DataError, match="can't be fitted on 2 validation pairs"):
        calibrator.fit(np.array(logit), np.array(label), train_prior=0.5)
