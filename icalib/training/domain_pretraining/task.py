"""Base of the tasks of domain pre-training: classification of windows of dialogues, with targets of the dialogues.

No answer of an unlabelled pool is ever a target (see `Windows`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from pydantic import Field
from typing_extensions import override

from icalib.core.combination import BACKBONE, TRAINING, Capabilities
from icalib.core.component import Component, ComponentConfig
from icalib.data.encoding import Encoded
from icalib.training.settings import EpochsRequired, TrainingSettings


class TaskBatch(NamedTuple):
    """The name of a task and of its head, the inputs of one batch, and their classes [B]."""

    task: str
    encoded: list[Encoded]
    classes: list[int]


class AbstractDomainPretraining(Component):
    """Base of domain pre-training: training on dialogues without labels, shared by all labelled fractions and seeds."""

    class Config(ComponentConfig):
        """Settings of every domain pre-training."""

        training: EpochsRequired = TrainingSettings()
        """Optimiser and schedule; without validation, the last weights are kept."""
        max_windows: int | None = Field(default=None, ge=1)
        """Maximum number of windows per epoch, drawn again each epoch; None uses all."""
        seed: int = 0
        """Seed of domain pre-training, separate from the run's: runs of all seeds use the same pre-trained model."""

        @override
        def requires(self) -> Capabilities:
            return {BACKBONE, TRAINING}


class WindowTask(AbstractDomainPretraining):
    """A self-supervised task: batches of examples from windows of dialogues, and their classes; a SettingError where
    the contexts contain no windows.
    """

    class Config(AbstractDomainPretraining.Config):
        """Settings of every task on windows."""

        masked_word_weight: float = Field(default=0.0, ge=0)
        """Weight of the masked-token loss, added to the task's loss; 0 masks no tokens."""

        task_heads: ClassVar[Mapping[str, int]] = {}
        """Number of classes of each linear head on [CLS], by name; these heads are dropped afterwards."""

    def batches(self, epoch: int) -> Sequence[Sequence[Any]]:
        """Return all batches of an epoch, a function of the settings, the data and the epoch."""
        raise NotImplementedError

    def collate(self, examples: Sequence[Any]) -> TaskBatch:
        """Collate the examples of one batch into inputs and classes."""
        raise NotImplementedError
