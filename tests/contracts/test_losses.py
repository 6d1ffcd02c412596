"""What every loss must do; a new one, of icalib or of a package outside of it, is discovered."""

from __future__ import annotations

import pytest
import torch
from helpers.discovery import discovered

from icalib.core.errors import SettingError
from icalib.losses.binary import AbstractLoss
from icalib.losses.head_objective import HeadObjective

LOSSES = {owner.__name__: owner for owner in discovered(AbstractLoss)}
OF_PAIRS = [name for name, loss in LOSSES.items() if loss is not HeadObjective]
LABELS = torch.tensor([0.0, 1.0, 0.0, 0.0])


@pytest.fixture(params=OF_PAIRS)
def loss(request: pytest.FixtureRequest) -> AbstractLoss:
    return LOSSES[request.param].Config().build()


def random_logits(seed: int = 0) -> torch.Tensor:
    return torch.randn(4, generator=torch.Generator().manual_seed(seed))


def test_gradients_raise_the_right_candidate_and_lower_the_others(loss: AbstractLoss) -> None:
    logits = random_logits().requires_grad_()
    loss(logits, LABELS).sum().backward()
    assert logits.grad is not None
    assert torch.equal(logits.grad < 0, LABELS == 1)


def test_a_larger_margin_costs_less(loss: AbstractLoss) -> None:
    costs = [loss(margin * (LABELS - 0.5), LABELS).sum().item() for margin in (-4.0, -1.0, 0.0, 1.0, 4.0)]
    assert costs == sorted(costs, reverse=True)
    assert len(set(costs)) == len(costs)


@pytest.mark.parametrize("size", [60.0, 1e4])
def test_saturated_logits_have_a_finite_loss_and_gradient(loss: AbstractLoss, size: float) -> None:
    for sign in (-1, 1):
        logits = (sign * size * (2 * LABELS - 1)).requires_grad_()
        losses = loss(logits, LABELS)
        losses.sum().backward()
        assert losses.isfinite().all()
        assert (losses >= 0).all()
        assert logits.grad is not None
        assert logits.grad.isfinite().all()


def test_the_order_of_pairs_changes_nothing(loss: AbstractLoss) -> None:
    logits, order = random_logits(), torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(loss(logits[order], LABELS[order]).sum(), loss(logits, LABELS).sum())


def test_the_objective_of_a_head_has_no_loss_of_pairs() -> None:
    with pytest.raises(SettingError, match="PolyaGammaHead"):
        HeadObjective.Config().build()(random_logits(), LABELS)
