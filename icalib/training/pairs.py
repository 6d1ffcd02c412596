"""Curricula of answers and intents, from labelled and pseudo-labelled pools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from icalib.core.seeding import child_seed
from icalib.data.batching import Batch, shuffled_batches
from icalib.data.encoding import Layout, Lists, TokenStore
from icalib.encoders import transformer
from icalib.encoders.transfer import to_device
from icalib.losses.binary import AbstractLoss
from icalib.models.ranker import make_batch
from icalib.scoring.offsets import Offsets
from icalib.training.epochs import AnswerInputs, Batches, Examples
from icalib.training.examples import TASKS, Example, PairLabels, encode, sampled, target
from icalib.training.settings import TrainingSettings


@dataclass
class AnswerCurriculum:
    """Batches of pairs in either view and of intents of utterances, one task per batch (ICAST Eq. 15)."""

    pools: Sequence[PairLabels]
    store: TokenStore
    layout: Layout
    loss: AbstractLoss
    settings: TrainingSettings
    num_intents: int
    seed: int
    offsets: Offsets | None = None
    """Logits of the ranker's other parts; None: 0."""

    @cached_property
    def _inputs(self) -> AnswerInputs:
        return AnswerInputs.of(self.pools, self.store, self.layout)

    def batches(self, epoch: int) -> Batches[Example]:
        """Return all batches of an epoch in random order; each batch has examples of one task.

        Negatives are drawn again for every epoch; both views of a pair use the same draw. With a balanced loss, all
        batches have the same fraction of right pairs, and these first.
        """
        examples, batches = self._epoch(epoch)
        return Batches(batches, examples.example)

    def _epoch(self, epoch: int) -> tuple[Examples, list[Batch]]:
        rng, settings = np.random.default_rng(child_seed(self.seed, "epoch", epoch)), self.settings
        inputs = self._inputs
        examples = Examples.of(inputs, sampled(inputs.pools.labels, settings.train_negatives, rng))
        limits = settings.batch_size, settings.max_tokens_per_batch
        batches: list[Batch] = []
        for number, task in enumerate(TASKS):
            chosen = np.flatnonzero(examples.task_M == number).astype(np.int32)
            classes = examples.labels(chosen) if self.loss.balanced and task != "intent" else None
            found = shuffled_batches(examples.length_M[chosen], *limits, rng, classes=classes)
            batches += [chosen[batch] for batch in found]
        return examples, [batches[int(index)] for index in rng.permutation(len(batches))]

    def losses(
        self, forward: Callable[..., Any], examples: Sequence[Example], device: torch.device
    ) -> tuple[str, Tensor]:
        """Return the summed loss of pairs, or of utterances (mean over the K intents)."""
        task = examples[0].task
        batch, targets = self.inputs(examples, device)
        if task == "intent":
            logits = forward("intent", batch)
            return task, nn.functional.binary_cross_entropy_with_logits(logits, targets, reduction="none").mean(1).sum()
        return task, forward("answer", batch, labels_B=targets[:, 0], loss=self.loss).sum()

    def inputs(self, examples: Sequence[Example], device: torch.device) -> tuple[transformer.Batch, Tensor]:
        """Return encoder inputs and targets ([B, 1], or [B, K] for intents) of examples of one task."""
        encoded = [encode(example, self.store.pool(example.labels.row), self.layout) for example in examples]
        targets = np.stack([target(example, self.num_intents) for example in examples])
        offset_B = None if self.offsets is None else [self._offset(self.offsets, example) for example in examples]
        return make_batch(encoded, self.layout, device, offset_B), to_device(torch.from_numpy(targets), device)

    def _offset(self, offsets: Offsets, example: Example) -> float:
        if example.task == "intent":
            return 0.0
        candidate = int(example.labels.candidates[example.position])
        return offsets.of_pair(example.labels.row, candidate, "intent" if example.task == "answer_intent" else "plain")

    def pairs(self) -> Examples:
        """Return every pair of the first epoch, in each of its views and in the order of its batches."""
        examples, batches = self._epoch(0)
        order = Lists.joined(batches).values
        return examples.take(order[examples.task_M[order] != TASKS.index("intent")])


@dataclass(kw_only=True)
class JointAnswerCurriculum(AnswerCurriculum):
    """Batches of pairs, each with one loss of all its pairs, and of intents; implements `JointCurriculum`.

    A Gaussian process over the parts of a batch would depend on their number, so the pairs' representations are
    gathered from all workers and parts.
    """

    joint_loss: Callable[..., Tensor]
    """`AbstractHead.joint_loss`; it reads representations and none of the head's parameters."""

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
        seed = child_seed(child_seed(self.seed, "joint loss"), *pairs)
        return examples[0].task, self.joint_loss(representations, labels_B, seed=seed)
