"""Losses over all candidates of a pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from typing_extensions import override

from icalib.losses.binary import AbstractLoss, Link


class AbstractPoolLoss(AbstractLoss):
    """Base of losses of whole pools, whose candidates' probabilities sum to 1."""

    class Config(AbstractLoss.Config):
        """Base of settings of losses over pools."""

        link: ClassVar[Link] = "softmax"

    @override
    def __call__(self, logits_B: Tensor, labels_B: Tensor) -> Tensor:
        """Return the loss [1] of one pool."""
        return self.of_pools([len(logits_B)])(logits_B, labels_B)

    def of_pools(self, sizes_P: Sequence[int]) -> Callable[[Tensor, Tensor], Tensor]:
        """Return the loss function of a batch of whole pools, one after the other: [B], [B] → [P].

        Args:
            sizes_P: candidates of each pool, B in total; one of each is right.
        """
        raise NotImplementedError


@final
class PoolCrossEntropy(AbstractPoolLoss):
    """−log softmax(f)_right over the candidates of a pool (ListNet's top-one loss with one right answer, Cao et al.
    2007, Eq. 8; what JM and GRN are trained with).

    It is log C where all logits are equal. Adding a constant to all logits of a pool changes nothing.
    """

    class Config(AbstractPoolLoss.Config):
        """Cross-entropy over pools has no settings."""

    def __init__(self, config: Config) -> None:
        self.config = config

    @override
    def of_pools(self, sizes_P: Sequence[int]) -> Callable[[Tensor, Tensor], Tensor]:

        def losses(logits_B: Tensor, labels_B: Tensor) -> Tensor:
            logits_PC = _padded(logits_B, sizes_P, -torch.inf)
            labels_PC = _padded(labels_B, sizes_P, 0.0)
            return cross_entropy(logits_PC, labels_PC.argmax(1), reduction="none")

        return losses


def _padded(values_B: Tensor, sizes_P: Sequence[int], padding: float) -> Tensor:
    """Return one row for each pool [P, C], C being the size of the largest."""
    pools = list(torch.split(values_B, list(sizes_P)))
    return pad_sequence(pools, batch_first=True, padding_value=padding)
