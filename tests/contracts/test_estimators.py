"""What every estimator must do; a new one, of icalib or of a package outside of it, is discovered."""

from __future__ import annotations

import math

import pytest
import torch
from helpers.discovery import discovered
from helpers.estimators import estimated
from torch import Tensor

from icalib.heads.head import LogitPosterior
from icalib.inference.moments import Moments, binary_entropy
from icalib.uncertainty.estimator import AbstractEstimator

ESTIMATORS = {owner.__name__: owner for owner in discovered(AbstractEstimator)}
FIELDS = ("prob_mean", "prob_var", "logit_mean", "logit_var", "mutual_information")
LOGITS = torch.tensor([-3.0, 0.2, 1.5, 8.0])


class NoisyModel:
    """Four pairs whose logits and posterior spread by `noise`; it has what the estimator says that it needs."""

    def __init__(self, needs: str, noise: float = 1.0, order: Tensor | None = None) -> None:
        self._needs, self._noise = needs, noise
        self._order = torch.arange(len(LOGITS)) if order is None else order

    def logits(self) -> Tensor:
        return LOGITS[self._order]

    def dropout_logits(self, num_passes: int) -> Tensor:
        assert self._needs == "dropout"
        noise = torch.randn(num_passes, len(LOGITS), generator=torch.Generator().manual_seed(0))
        return (LOGITS + self._noise * noise)[:, self._order]

    def posterior(self) -> LogitPosterior:
        assert self._needs == "posterior"
        offsets_S1 = self._noise * torch.tensor([[-0.5], [0.5]])
        return LogitPosterior((LOGITS + offsets_S1)[:, self._order], self._noise * torch.ones(2, len(LOGITS)))


@pytest.fixture(params=ESTIMATORS)
def estimator(request: pytest.FixtureRequest) -> AbstractEstimator.Config:
    return ESTIMATORS[request.param].Config()


def estimate(config: AbstractEstimator.Config, *, noise: float = 1.0, order: Tensor | None = None) -> Moments:
    return estimated(config, NoisyModel(config.needs, noise, order))


def test_moments_are_within_their_bounds(estimator: AbstractEstimator.Config) -> None:
    moments = estimate(estimator)
    for name in FIELDS:
        value = getattr(moments, name)
        assert value.shape == LOGITS.shape
        assert value.dtype == torch.float64
        assert value.isfinite().all()
    assert ((moments.prob_mean >= 0) & (moments.prob_mean <= 1)).all()
    assert (moments.logit_var >= 0).all()
    assert ((moments.prob_var >= 0) & (moments.prob_var <= moments.prob_mean * (1 - moments.prob_mean))).all()
    assert (moments.mutual_information >= 0).all()
    assert (moments.mutual_information <= binary_entropy(moments.prob_mean) + 1e-12).all()
    assert (moments.mutual_information <= math.log(2)).all()
    assert moments.num_passes >= 1


def test_a_model_without_spread_leaves_no_uncertainty(estimator: AbstractEstimator.Config) -> None:
    moments = estimate(estimator, noise=0.0)
    torch.testing.assert_close(moments.prob_mean, torch.sigmoid(LOGITS.double()))
    torch.testing.assert_close(moments.logit_mean, LOGITS.double())
    for name in ("prob_var", "logit_var", "mutual_information"):
        assert getattr(moments, name).tolist() == pytest.approx([0.0] * len(LOGITS), abs=1e-12)


def test_the_order_of_pairs_changes_nothing(estimator: AbstractEstimator.Config) -> None:
    order = torch.tensor([2, 0, 3, 1])
    shuffled, moments = estimate(estimator, order=order), estimate(estimator)
    for name in FIELDS:
        torch.testing.assert_close(getattr(shuffled, name), getattr(moments, name)[order])
