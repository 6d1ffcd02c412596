"""Jobs that post-train a ranker or a bi-encoder on the dialogues of the corpus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, ClassVar

import torch
from pydantic import SerializeAsAny
from typing_extensions import override

from icalib.core.errors import SettingError
from icalib.core.job import Artifact, ByContent
from icalib.data.encoding import Budget, Layout, TokenStore
from icalib.data.logs import LogStore
from icalib.data.selection import Selection
from icalib.encoders.backbone import backbone_digest
from icalib.models.checkpoint import CHECKPOINT_VERSION, RankerConfig
from icalib.models.dual_encoder import DualEncoder
from icalib.models.ranker import Ranker
from icalib.training.job import Training, TrainingJob
from icalib.training.post_training.contrastive import Contrastive
from icalib.training.post_training.curriculum import HeldOutWindows, Judged, post_training_curriculum
from icalib.training.post_training.responses import Corpus
from icalib.training.post_training.task import AbstractPostTraining, WindowTask
from icalib.training.settings import TrainingSettings


class PostTrainJob(TrainingJob):
    """Post-trains a ranker, once for all labelled fractions, seeds and methods with the same encoder."""

    version: ClassVar[int] = CHECKPOINT_VERSION + 2  # dropout masks of integers

    ranker: RankerConfig
    task: SerializeAsAny[WindowTask.Config]
    selection: Selection
    train_tokens: Artifact
    validation_tokens: Artifact

    @property
    @override
    def loop(self) -> tuple[TrainingSettings, int]:
        return self.task.training, self.task.seed

    @override
    def build(self, device: torch.device) -> Training:
        ranker = Ranker(self.ranker, masked_words=self.task.masked_word_weight > 0, task_heads=self.task.task_heads)
        curriculum = post_training_curriculum(
            self.task, ranker, TokenStore(self.train_tokens.path), self.selection, "train"
        )
        return Training(ranker, curriculum, self._held_out(ranker, device))

    def _held_out(self, ranker: Ranker, device: torch.device) -> HeldOutWindows | None:
        task = self.task.model_copy(update={"max_windows": self.task.held_out_windows})
        store = TokenStore(self.validation_tokens.path)
        return _held_out(
            lambda: post_training_curriculum(task, ranker, store, self.selection, "validation"), self.task, device
        )


class DialogueJob(TrainingJob):
    """Base of jobs that read the training dialogues and logs."""

    version: ClassVar[int] = CHECKPOINT_VERSION + 2  # dropout masks of integers

    selection: Selection
    train_tokens: Artifact
    validation_tokens: Artifact
    test_tokens: Artifact
    """Read only to leave out what is an answer there, like the validation tokens."""
    logs: Artifact | None = None
    """Token file of the logs."""

    def corpus(self) -> Corpus:
        """Return what is read for training."""
        store, held_out = TokenStore(self.train_tokens.path), (self.validation_tokens, self.test_tokens)
        rows = self.selection.rows("train", "all", store.column("label_order")).tolist()
        logs = LogStore(self.logs.path) if self.logs else None
        return Corpus(store, rows, [TokenStore(tokens.path) for tokens in held_out], logs)

    def validation_corpus(self) -> Corpus:
        """Return what is read for the held-out metrics."""
        store = TokenStore(self.validation_tokens.path)
        return Corpus(store, self.selection.rows("validation", "all", store.column("label_order")).tolist())


class ContrastiveJob(DialogueJob):
    """Post-trains a bi-encoder, once for all labelled fractions, seeds and methods with the same backbone."""

    backbone: Annotated[str, ByContent(backbone_digest)]
    budget: Budget
    task: Contrastive.Config

    @property
    @override
    def loop(self) -> tuple[TrainingSettings, int]:
        return self.task.training, self.task.seed

    @override
    def build(self, device: torch.device) -> Training:
        encoder = DualEncoder(self.backbone, self.budget)
        task = self.task.model_copy(update={"max_windows": self.task.held_out_windows, "targets": "windows"})
        held_out = _held_out(
            lambda: task.build(corpus=self.validation_corpus(), layout=encoder.layout), self.task, device
        )
        return Training(encoder, self.curriculum(encoder.layout), held_out)

    def curriculum(self, layout: Layout) -> Contrastive:
        """Return the task on the training dialogues and logs."""
        return self.task.build(corpus=self.corpus(), layout=layout)


def _held_out(
    build: Callable[[], Judged], task: AbstractPostTraining.Config, device: torch.device
) -> HeldOutWindows | None:
    """Return the windows of validation contexts; None if the contexts contain no windows."""
    try:
        curriculum = build()
    except SettingError:
        return None
    return HeldOutWindows(curriculum, task.training, device, task.seed)
