"""Losses over the candidates of a pool together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from icalib.losses.binary import AbstractLoss, Link


class AbstractPoolLoss(AbstractLoss):
    """Loss of each pool from the logits and labels of its candidates, which compete for one unit of probability."""

    class Config(AbstractLoss.Config):
        """Base of settings of losses over pools."""

        link: ClassVar[Link] = "softmax"

    def __call__(self, logits_B: Tensor, labels_B: Tensor) -> Tensor:
        """Loss of one pool [1], whose candidates these are."""
        return self.of_pools([len(logits_B)])(logits_B, labels_B)

    def of_pools(self, sizes_P: Sequence[int]) -> Callable[[Tensor, Tensor], Tensor]:
        """The loss of a batch of whole pools, one after the other: [B], [B] → [P].

        Args:
            sizes_P: candidates of each pool, B in all; one of each is right.
        """
        raise NotImplementedError


@final
class PoolCrossEntropy(AbstractPoolLoss):
    """−log softmax(f)_right over the candidates of a pool (ListNet's top-one loss with one right answer, Cao et al.
    2007, Eq. 8; what JM and GRN are trained with).

    It starts at log C where all logits are equal. What is added to all logits of a pool changes nothing.
    """

    class Config(AbstractPoolLoss.Config):
        """Cross-entropy over pools has no settings."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def of_pools(self, sizes_P: Sequence[int]) -> Callable[[Tensor, Tensor], Tensor]:
        """The loss of a batch of whole pools."""

        def losses(logits_B: Tensor, labels_B: Tensor) -> Tensor:
            logits_PC = _padded(logits_B, sizes_P, -torch.inf)
            labels_PC = _padded(labels_B, sizes_P, 0.0)
            return cross_entropy(logits_PC, labels_PC.argmax(1), reduction="none")

        return losses


def _padded(values_B: Tensor, sizes_P: Sequence[int], padding: float) -> Tensor:
    """One row a pool [P, C], C candidates in the largest."""
    pools = list(torch.split(values_B, list(sizes_P)))
    return pad_sequence(pools, batch_first=True, padding_value=padding)
