"""Jobs that pre-train a ranker or a bi-encoder on the dialogues of the corpus."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import SerializeAsAny
from typing_extensions import override

from icalib.core.job import Artifact, ByContent
from icalib.data.encoding import Budget, TokenStore
from icalib.data.logs import LogStore
from icalib.data.selection import Selection
from icalib.encoders.backbone import backbone_digest
from icalib.models.bi_encoder import BiEncoder
from icalib.models.checkpoint import CHECKPOINT_VERSION, RankerConfig
from icalib.models.ranker import Ranker
from icalib.training.domain_pretraining.contrastive import Contrastive
from icalib.training.domain_pretraining.curriculum import DomainPretrainingCurriculum
from icalib.training.domain_pretraining.responses import Corpus
from icalib.training.domain_pretraining.task import WindowTask
from icalib.training.job import Training, TrainingJob
from icalib.training.settings import TrainingSettings


class DomainPretrainJob(TrainingJob):
    """Pre-trains a ranker, once for all labelled fractions, seeds and methods with the same encoder."""

    version: ClassVar[int] = CHECKPOINT_VERSION + 5  # masked tokens weigh the same in any number of parts

    ranker: RankerConfig
    task: SerializeAsAny[WindowTask.Config]
    selection: Selection
    train_tokens: Artifact

    @property
    @override
    def loop(self) -> tuple[TrainingSettings, int]:
        return self.task.training, self.task.seed

    @override
    def build(self, device: torch.device) -> Training:
        ranker = Ranker(self.ranker, masked_words=self.task.masked_word_weight > 0, task_heads=self.task.task_heads)
        store = TokenStore(self.train_tokens.path)
        return Training(ranker, DomainPretrainingCurriculum(self.task, ranker, store, _rows(store, self.selection)))


class ContrastiveJob(TrainingJob):
    """Pre-trains a bi-encoder, once for all labelled fractions, seeds and methods with the same backbone."""

    version: ClassVar[int] = CHECKPOINT_VERSION + 3  # word embeddings of tokens that occur

    selection: Selection
    train_tokens: Artifact
    validation_tokens: Artifact
    test_tokens: Artifact
    """Read only to leave out what is an answer there, like the validation tokens."""
    logs: Artifact | None = None
    """Token file of the logs."""
    backbone: Annotated[str, ByContent(backbone_digest)]
    budget: Budget
    task: Contrastive.Config

    @property
    @override
    def loop(self) -> tuple[TrainingSettings, int]:
        return self.task.training, self.task.seed

    @override
    def build(self, device: torch.device) -> Training:
        encoder, store = BiEncoder(self.backbone, self.budget), TokenStore(self.train_tokens.path)
        held_out = [TokenStore(tokens.path) for tokens in (self.validation_tokens, self.test_tokens)]
        logs = LogStore(self.logs.path) if self.logs else None
        rows = _rows(store, self.selection)
        curriculum = self.task.build(corpus=Corpus(store, rows, held_out, logs), layout=encoder.layout)
        texts = store.token_ids(rows)
        if logs is not None:
            texts = np.union1d(texts, logs.token_ids())
        return Training(encoder, curriculum, token_ids=encoder.layout.token_ids(texts))


def _rows(store: TokenStore, selection: Selection) -> list[int]:
    return selection.rows("train", "all", store.column("label_order")).tolist()
