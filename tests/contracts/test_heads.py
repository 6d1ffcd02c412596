"""What every head must do; a new one, of icalib or of a package outside of it, is discovered."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers.discovery import default_config, discovered

from icalib.core.combination import OWN_OBJECTIVE
from icalib.heads.head import AbstractHead, PairLoss, PosteriorHead
from icalib.losses.binary import BinaryCrossEntropy
from icalib.losses.head_objective import HeadObjective

WIDTH = 6
FEATURES = torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(0))
MEAN, LABELS = torch.linspace(-1, 1, 8), torch.tensor([1.0, 0.0] * 4)


@pytest.fixture(params=discovered(AbstractHead), ids=lambda owner: owner.__name__)
def head(request: pytest.FixtureRequest) -> AbstractHead:
    torch.manual_seed(0)
    return default_config(request.param).build(width=WIDTH)


def loss_for(head: AbstractHead) -> PairLoss:
    own = OWN_OBJECTIVE in default_config(type(head)).provides()
    return (HeadObjective if own else BinaryCrossEntropy).Config().build()


def test_it_gives_one_finite_float32_logit_a_pair(head: AbstractHead) -> None:
    logits = ready(head)(FEATURES, MEAN)
    assert logits.shape == MEAN.shape
    assert logits.dtype == torch.float32
    assert torch.isfinite(logits).all()


def test_in_evaluation_it_is_deterministic_and_reads_each_pair_by_itself(head: AbstractHead) -> None:
    logits = ready(head)(FEATURES, MEAN)
    torch.testing.assert_close(head(FEATURES, MEAN), logits, rtol=0, atol=0)
    torch.testing.assert_close(head(FEATURES[3:5], MEAN[3:5]), logits[3:5])


def test_it_corrects_the_mean_function(head: AbstractHead) -> None:
    torch.testing.assert_close(ready(head)(FEATURES, MEAN + 1), head(FEATURES, MEAN) + 1)


def test_it_gives_one_finite_loss_a_pair_and_a_gradient_to_every_parameter(head: AbstractHead) -> None:
    losses = begun(head).losses(FEATURES, MEAN, LABELS, loss_for(head))
    assert losses.shape == LABELS.shape
    assert torch.isfinite(losses).all()
    losses.sum().backward()
    assert without_gradient(head) == []


def test_a_few_updates_lower_the_loss(head: AbstractHead) -> None:
    loss, optimizer = loss_for(head), torch.optim.Adam(begun(head).parameters(), lr=1e-2)
    features = FEATURES + 2 * LABELS[:, None]
    totals = []
    for seed in range(20):
        torch.manual_seed(seed)  # of dropout
        optimizer.zero_grad()
        total = head.losses(features, torch.zeros(8), LABELS, loss).sum()
        total.backward()
        optimizer.step()
        totals.append(total.item())
    assert totals[-1] < totals[0]


def test_its_weights_come_back_from_a_checkpoint(head: AbstractHead) -> None:
    state = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    torch.manual_seed(1)
    other: Any = default_config(type(head)).build(width=WIDTH)
    other.load_state_dict(state)
    weights = other.state_dict()
    assert weights.keys() == state.keys()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in state.items())


def ready(head: AbstractHead) -> AbstractHead:
    """The head in evaluation, with a posterior where it can have one: some heads predict by it alone."""
    head.eval()
    if isinstance(head, PosteriorHead):
        head.observe(FEATURES, MEAN, LABELS)
        head.condition([head.observations()], seed=0)
    return head


def begun(head: AbstractHead) -> AbstractHead:
    """The head in training, as it is at the first part of an epoch."""
    head.train()
    head.start_epoch()
    head.start_part(counted=True)
    return head


def without_gradient(head: AbstractHead) -> list[str]:
    return [name for name, parameter in head.named_parameters() if parameter.grad is None]
