"""Curriculum of answers and intents for heads whose objective is one of all pairs of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from icalib.core.seeding import child_seed
from icalib.data.encoding import Layout, TokenStore
from icalib.encoders.transfer import to_device
from icalib.losses.binary import AbstractLoss
from icalib.scoring.offsets import Offsets
from icalib.training.examples import Example, PairLabels, target
from icalib.training.pairs import AnswerCurriculum
from icalib.training.settings import TrainingSettings


class JointLoss(Protocol):
    """The loss of a whole batch of pairs; see `AbstractHead.joint_loss`."""

    def __call__(self, representations_BR: Tensor, labels_B: Tensor, *, seed: int) -> Tensor:
        """Return the summed loss."""
        ...


class JointAnswerCurriculum(AnswerCurriculum):
    """Batches of pairs, each with one loss of all its pairs, and of intents; implements `JointCurriculum`.

    A Gaussian process over the parts of a batch would depend on their number, and over single pairs it would learn
    nothing about their likeness. So the pairs' representations are gathered from all workers and parts.

    Args:
        joint_loss: the head's; it reads representations and none of the head's parameters.
    """

    def __init__(
        self,
        pools: Sequence[PairLabels],
        store: TokenStore,
        layout: Layout,
        loss: AbstractLoss,
        settings: TrainingSettings,
        *,
        num_intents: int,
        seed: int,
        joint_loss: JointLoss,
        offsets: Offsets | None = None,
    ) -> None:
        super().__init__(pools, store, layout, loss, settings, num_intents=num_intents, seed=seed, offsets=offsets)
        self._joint_loss, self._chain_seed = joint_loss, child_seed(seed, "joint loss")

    def is_joint(self, examples: Sequence[Example]) -> bool:
        """Return whether these are pairs; intents of utterances have a loss each."""
        return examples[0].task != "intent"

    @override
    def losses(
        self, forward: Callable[..., Any], examples: Sequence[Example], device: torch.device
    ) -> tuple[str, Tensor]:
        if self.is_joint(examples):
            return self.compare(self.represent(forward, examples, device), examples)
        return super().losses(forward, examples, device)

    def represent(self, forward: Callable[..., Any], examples: Sequence[Example], device: torch.device) -> Tensor:
        """Return what the loss reads of each pair; [B, R]."""
        return forward("represent", self.inputs(examples, device)[0])

    def compare(self, representations: Tensor, examples: Sequence[Example]) -> tuple[str, Tensor]:
        """Return the summed loss of a batch; its random draws depend on the batch only, so all workers agree."""
        labels = torch.from_numpy(np.stack([target(example, 1)[0] for example in examples]))
        labels_B = to_device(labels.to(representations.dtype), representations.device)
        pairs = [number for example in examples for number in (example.labels.row, example.position)]
        seed = child_seed(self._chain_seed, *pairs)
        return examples[0].task, self._joint_loss(representations, labels_B, seed=seed)
