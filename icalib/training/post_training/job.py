"""Post-training a ranker on the corpus' own dialogues."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import SerializeAsAny

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
    """One post-training, shared by all labelled fractions, seeds and methods with the same encoder."""

    version: ClassVar[int] = CHECKPOINT_VERSION

    ranker: RankerConfig
    task: SerializeAsAny[AbstractPostTraining.Config]
    selection: Selection
    train_tokens: Artifact
    validation_tokens: Artifact

    @property
    def loop_settings(self) -> TrainingSettings:
        """Optimiser and schedule."""
        return self.task.training

    @property
    def loop_seed(self) -> int:
        """The task's own seed."""
        return self.task.seed

    def build(self, device: torch.device) -> Training:
        """The ranker with the heads that are asked, and windows of dialogues."""
        ranker = Ranker(self.ranker, masked_words=self.task.masked_word_weight > 0, questions=self.task.questions)
        curriculum = post_training_curriculum(
            self.task, ranker, TokenStore(self.train_tokens.path), self.selection, "train"
        )
        return Training(ranker, curriculum, self._held_out(ranker, device), validation_selects=False)

    def _held_out(self, ranker: Ranker, device: torch.device) -> HeldOutWindows | None:
        """Windows of validation contexts; None where those are too short to hold any."""
        few = self.task.model_copy(update={"max_windows": self.task.held_out_windows})
        store = TokenStore(self.validation_tokens.path)
        try:
            curriculum = post_training_curriculum(few, ranker, store, self.selection, "validation")
        except SettingError:
            return None
        return HeldOutWindows(curriculum, self.task.training, device, self.task.seed)
