"""Job that post-trains a ranker on the dialogues of the corpus."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import SerializeAsAny
from typing_extensions import override

from icalib.core.errors import SettingError
from icalib.core.job import Artifact
from icalib.data.encoding import TokenStore
from icalib.data.selection import Selection
from icalib.models.checkpoint import CHECKPOINT_VERSION
from icalib.models.config import RankerConfig
from icalib.models.ranker import Ranker
from icalib.training.job import Training, TrainingJob
from icalib.training.post_training.curriculum import HeldOutWindows, post_training_curriculum
from icalib.training.post_training.task import AbstractPostTraining
from icalib.training.settings import TrainingSettings


class PostTrainJob(TrainingJob):
    """Post-trains a ranker.

    Runs with the same encoder reuse the result for all labelled fractions, seeds and methods.
    """

    version: ClassVar[int] = CHECKPOINT_VERSION

    ranker: RankerConfig
    task: SerializeAsAny[AbstractPostTraining.Config]
    selection: Selection
    train_tokens: Artifact
    validation_tokens: Artifact

    @property
    @override
    def loop_settings(self) -> TrainingSettings:
        return self.task.training

    @property
    @override
    def loop_seed(self) -> int:
        return self.task.seed

    @override
    def build(self, device: torch.device) -> Training:
        ranker = Ranker(self.ranker, masked_words=self.task.masked_word_weight > 0, task_heads=self.task.task_heads)
        curriculum = post_training_curriculum(
            self.task, ranker, TokenStore(self.train_tokens.path), self.selection, "train"
        )
        return Training(ranker, curriculum, self._held_out(ranker, device), validation_selects=False)

    def _held_out(self, ranker: Ranker, device: torch.device) -> HeldOutWindows | None:
        """Return the windows of validation contexts; None if the contexts contain no windows."""
        held_out = self.task.model_copy(update={"max_windows": self.task.held_out_windows})
        store = TokenStore(self.validation_tokens.path)
        try:
            curriculum = post_training_curriculum(held_out, ranker, store, self.selection, "validation")
        except SettingError:
            return None
        return HeldOutWindows(curriculum, self.task.training, device, self.task.seed)
