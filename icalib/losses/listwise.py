"""Losses over all candidates of a pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn.functional import log_softmax
from torch.nn.utils.rnn import pad_sequence
from typing_extensions import override

from icalib.core.combination import WHOLE_POOLS, Capabilities
from icalib.core.component import missing
from icalib.losses.binary import AbstractLoss, Link


class AbstractPoolLoss(AbstractLoss):
    """Base of losses of whole pools, whose candidates' probabilities sum to 1."""

    class Config(AbstractLoss.Config):
        """Base of settings of losses over pools."""

        link: ClassVar[Link] = "softmax"

        @override
        def requires(self) -> Capabilities:
            return super().requires() | {WHOLE_POOLS}

    @override
    def __call__(self, logits_B: Tensor, labels_B: Tensor) -> Tensor:
        return self.of_pools([len(logits_B)])(logits_B, labels_B)

    def of_pools(self, sizes_P: Sequence[int], *, with_none: bool = False) -> Callable[[Tensor, Tensor], Tensor]:
        """Return the loss function of a batch of whole pools with `sizes_P` candidates each: [B], [B] → [P].

        `with_none` says that training has pools without a right candidate: "none of these" then competes in every pool.
        """
        raise missing(self, "of_pools")


@final
class PoolCrossEntropy(AbstractPoolLoss):
    """−log softmax(f)_right over the candidates of a pool (ListNet's top-one loss with one right answer, Cao et al.
    2007, Eq. 8; what JM and GRN are trained with).

    It is log C where all logits are equal. Adding a constant to all logits of a pool changes nothing. With several
    right candidates it is the mean over them. If training has pools without a right candidate, each pool has one more
    candidate with the constant logit 0, which is right where no other is: so logits have a level that such pools lower.
    """

    class Config(AbstractPoolLoss.Config):
        """Cross-entropy over pools has no settings."""

    @override
    def of_pools(self, sizes_P: Sequence[int], *, with_none: bool = False) -> Callable[[Tensor, Tensor], Tensor]:

        def losses(logits_B: Tensor, labels_B: Tensor) -> Tensor:
            logits_PC = _padded(logits_B, sizes_P, -torch.inf)
            labels_PC = _padded(labels_B, sizes_P, 0.0)
            if with_none:
                is_unanswerable_P1 = (labels_PC.sum(1, keepdim=True) == 0).to(labels_PC.dtype)
                logits_PC = torch.cat([logits_PC, torch.zeros_like(logits_PC[:, :1])], 1)
                labels_PC = torch.cat([labels_PC, is_unanswerable_P1], 1)
            log_prob_PC = log_softmax(logits_PC, 1)
            right_PC = torch.where(labels_PC > 0, log_prob_PC, 0.0)  # 0 · −∞ of the padding would be NaN
            return -right_PC.sum(1) / labels_PC.sum(1)

        return losses


def _padded(values_B: Tensor, sizes_P: Sequence[int], padding: float) -> Tensor:
    pools = list(torch.split(values_B, list(sizes_P)))
    return pad_sequence(pools, batch_first=True, padding_value=padding)
