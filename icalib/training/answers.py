"""Job that trains a ranker on answers: on labelled pools, and optionally on pseudo labels or generated texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import torch
from pydantic import SerializeAsAny
from typing_extensions import override

from icalib.core.job import Artifact
from icalib.data.encoding import Layout, TokenStore
from icalib.data.generated import GeneratedStore
from icalib.data.selection import Selection
from icalib.losses.binary import AbstractLoss
from icalib.losses.listwise import AbstractPoolLoss
from icalib.models.checkpoint import CHECKPOINT_VERSION, save_posterior
from icalib.models.config import RankerConfig
from icalib.models.ranker import Ranker, load_ranker, start_weights
from icalib.training.conditioning import Conditioning, is_conditioned_on_support
from icalib.training.contrast import AbstractContrast, AugmentedCurriculum
from icalib.training.examples import PairLabels, gold_labels
from icalib.training.job import Training, TrainingJob
from icalib.training.loop import Curriculum, Engine
from icalib.training.pairs import AnswerCurriculum, PlainValidation
from icalib.training.pools import PoolCurriculum
from icalib.training.pseudo_labelled import pseudo_labelled
from icalib.training.settings import TrainingSettings
from icalib.training.similarity_fit import fit_similarity_start
from icalib.training.similarity_memory import remember_similarities


class TrainJob(TrainingJob):
    """Trains a ranker on answers."""

    version: ClassVar[int] = CHECKPOINT_VERSION + 2  # dropout masks of integers; similarities are computed by pool

    ranker: RankerConfig
    loss: SerializeAsAny[AbstractLoss.Config]
    training: TrainingSettings
    selection: Selection
    views_with_intents: bool = False
    """Also train on the intent view and the intents of labelled pools."""
    train_tokens: Artifact
    validation_tokens: Artifact
    start: Artifact | None = None
    """Checkpoint with the initial weights; None starts from the backbone."""
    pseudo_labels: Artifact | None = None
    """Folder of pseudo-label shards, used in addition to the labelled pools. Its digest covers only what is trained on,
    so rules that select the same pairs reuse the same student."""
    contrast: SerializeAsAny[AbstractContrast.Config] | None = None
    """Loss term of generated texts; None trains on the pools alone."""
    generated: Artifact | None = None
    """Token file of the generated texts."""
    seed: int

    @property
    @override
    def loop_settings(self) -> TrainingSettings:
        return self.training

    @property
    @override
    def loop_seed(self) -> int:
        return self.seed

    @property
    @override
    def reports_epochs(self) -> bool:
        return True

    @property
    @override
    def has_posterior(self) -> bool:
        return self.ranker.head.has_posterior

    @override
    def build(self, device: torch.device) -> Training:
        ranker = Ranker(self.ranker)
        if self.start is not None:
            start_weights(ranker, self.start.path)
        store = TokenStore(self.train_tokens.path)
        labelled = self._labelled(store)
        pools = [*labelled, *(pseudo_labelled(self.pseudo_labels.path, store) if self.pseudo_labels else [])]
        remember_similarities(ranker, store, [pool.row for pool in pools], self.training, device)
        fit_similarity_start(ranker, labelled, store, self.training, device, self.seed)
        curriculum = self._curriculum(pools, store, ranker.layout)
        return Training(ranker, curriculum, self._validation(ranker, device, curriculum))

    def _labelled(self, store: TokenStore) -> list[PairLabels]:
        rows = self.selection.rows("train", "labelled", store.column("label_order"))
        return [gold_labels(pool, with_intents=self.views_with_intents) for pool in store.pools(rows)]

    def _curriculum(
        self, pools: Sequence[PairLabels], store: TokenStore, layout: Layout
    ) -> AnswerCurriculum | PoolCurriculum:
        loss = self.loss.build()
        if self.contrast is not None and self.generated is not None:
            generated = GeneratedStore(self.generated.path)
            return AugmentedCurriculum(
                pools, store, layout, loss, self.training,
                seed=self.seed, contrast=self.contrast.build(), generated=generated,
            )  # fmt: skip
        return answer_curriculum(
            pools, store, layout, loss, self.training, num_intents=len(self.ranker.intents), seed=self.seed
        )

    def _validation(self, ranker: Ranker, device: torch.device, curriculum: Curriculum) -> PlainValidation:
        store = TokenStore(self.validation_tokens.path)
        rows = self.selection.rows("validation", "all", store.column("label_order"))
        labelled = rows[store.column("label")[rows] >= 0]
        if not is_conditioned_on_support(ranker):
            return PlainValidation(
                store, labelled.tolist(), ranker.layout, self.training, device, link=self.ranker.link
            )
        assert isinstance(curriculum, AnswerCurriculum)
        conditioning = Conditioning(curriculum, self.training, device, self.seed)
        return PlainValidation(
            store, labelled.tolist(), ranker.layout, self.training, device, prepare=conditioning.complete
        )

    @override
    def add_posterior(self, checkpoint: Path, training: Training, engine: Engine) -> int:
        assert isinstance(training.curriculum, AnswerCurriculum)
        ranker = load_ranker(checkpoint).to(engine.device)
        Conditioning(training.curriculum, self.training, engine.device, self.seed).begin(ranker, engine)
        head = ranker.posterior_head
        assert head is not None
        if engine.rank == 0:
            save_posterior(checkpoint, head.posterior_state())
        return head.num_jitters


def answer_curriculum(
    pools: Sequence[PairLabels],
    store: TokenStore,
    layout: Layout,
    loss: AbstractLoss,
    settings: TrainingSettings,
    *,
    num_intents: int,
    seed: int,
) -> AnswerCurriculum | PoolCurriculum:
    """Return a curriculum of pairs and intents, or of whole pools if the loss needs these."""
    if isinstance(loss, AbstractPoolLoss):
        return PoolCurriculum(pools, store, layout, loss, settings, seed=seed)
    return AnswerCurriculum(pools, store, layout, loss, settings, num_intents=num_intents, seed=seed)
