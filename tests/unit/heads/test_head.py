"""What heads and losses from outside may return, and what is refused by their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from icalib.core.errors import SettingError
from icalib.heads.head import AbstractHead
from icalib.heads.linear import LinearHead
from icalib.heads.random_features import RandomFeatureHead
from icalib.losses.binary import AbstractLoss, BinaryCrossEntropy
from icalib.losses.listwise import AbstractPoolLoss

FEATURES, MEAN, LABELS = torch.randn(4, 6), torch.zeros(4), torch.tensor([1.0, 0.0, 1.0, 0.0])
NAME = __name__.replace(".", r"\.")


class OwnLoss(AbstractLoss):
    change: Callable[[Tensor], Any]

    def __call__(self, logits_B: Tensor, labels_B: Tensor) -> Any:
        return self.change(binary_cross_entropy_with_logits(logits_B, labels_B, reduction="none"))


class OwnHead(AbstractHead):
    change: Callable[[Tensor], Any]

    def __init__(self, config: Any, *, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 1)

    def forward(self, features_BD: Tensor, mean_B: Tensor) -> Any:
        return self.change(self.linear(features_BD))


class EmptyHead(AbstractHead):
    """No forward."""

    def __init__(self, config: Any) -> None:
        super().__init__()


class EmptyLoss(AbstractLoss):
    """No call."""


class EmptyPoolLoss(AbstractPoolLoss):
    """No losses of pools."""


@pytest.mark.parametrize("head", [LinearHead, RandomFeatureHead])
@pytest.mark.parametrize(
    ("change", "returned"),
    [
        (lambda losses: None, "None"),
        (lambda losses: 0.5, "0.5"),
        (torch.mean, r"a tensor of shape \[\]"),
        (lambda losses: losses[:2], r"a tensor of shape \[2\]"),
        (lambda losses: losses[None], r"a tensor of shape \[1, 4\]"),
        (torch.detach, "a tensor without a gradient"),
    ],
)
def test_a_loss_that_does_not_give_each_pair_one_is_named(head: type[AbstractHead], change: Any, returned: str) -> None:
    loss = OwnLoss({})
    loss.change = change
    wanted = (
        rf"the loss `{NAME}\.OwnLoss` returned {returned}; expected a tensor of shape \[4\] with a gradient\. Leave"
    )
    with pytest.raises(SettingError, match=wanted):
        head.Config().build(width=6).losses(FEATURES, MEAN, LABELS, loss)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda logits: logits, r"returned a tensor of shape \[4, 1\]; expected a tensor of shape \[4\]"),
        (lambda logits: logits @ logits.T, r"returned a tensor of shape \[4, 4\]"),
        (lambda logits: logits.sum(), r"returned a tensor of shape \[\]"),
        (lambda logits: logits[:, 0].detach(), "returned a tensor without a gradient"),
        (lambda logits: None, "returned None"),
        (nn.Linear(5, 1), r"failed for features of shape \[4, 6\]: RuntimeError: mat1 and mat2"),
        (lambda logits: logits[:, 0] + torch.ones(3), r"failed .*: The size of tensor a .*test_head\.py, line \d+\)"),
        (lambda logits: {}["logits"], r"failed .*: KeyError: 'logits' \(.*test_head\.py, line \d+\)"),
    ],
)
def test_a_head_that_does_not_give_each_pair_a_logit_is_named(change: Any, words: str) -> None:
    head = OwnHead({}, width=6)
    head.change = change
    for compute in (head.touch, lambda *given: head.losses(*given, LABELS, BinaryCrossEntropy.Config().build())):
        with pytest.raises(SettingError, match=rf"the head `{NAME}\.OwnHead` {words}"):
            compute(FEATURES, MEAN)


def raising(error: Exception) -> AbstractLoss:
    def change(losses: Tensor) -> Tensor:
        raise error

    loss = OwnLoss({})
    loss.change = change
    return loss


def test_an_error_of_a_loss_has_its_place() -> None:
    wanted = rf"the loss `{NAME}\.OwnLoss` failed for 4 logits and labels: RuntimeError: no \(.*test_head\.py, line"
    with pytest.raises(SettingError, match=wanted):
        LinearHead.Config().build(width=6).losses(FEATURES, MEAN, LABELS, raising(RuntimeError("no")))


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"),
        OSError("No space left on device"),
        SettingError("a setting that can't be"),
    ],
)
def test_an_error_of_the_machine_or_the_user_stays_as_it_is(error: Exception) -> None:
    with pytest.raises(type(error)) as found:
        LinearHead.Config().build(width=6).losses(FEATURES, MEAN, LABELS, raising(error))
    assert found.value is error


def test_without_gradients_none_is_expected() -> None:
    head, loss = LinearHead.Config().build(width=6), BinaryCrossEntropy.Config().build()
    with torch.no_grad():
        assert head.losses(FEATURES, MEAN, LABELS, loss).shape == (4,)


@pytest.mark.parametrize(
    ("owner", "method"), [(EmptyHead, "forward"), (EmptyLoss, "__call__"), (EmptyPoolLoss, "of_pools")]
)
def test_what_a_component_lacks_is_named(owner: Any, method: str) -> None:
    with pytest.raises(SettingError, match=rf"`{NAME}\.{owner.__name__}` has no method `{method}`"):
        owner({})(MEAN, LABELS)
