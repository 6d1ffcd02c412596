"""Training a ranker on answers: labelled pools, and pseudo labels or generated texts beside them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

import torch
from pydantic import SerializeAsAny

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


class TrainJob(TrainingJob):
    """One training of a ranker on answers."""

    version: ClassVar[int] = CHECKPOINT_VERSION

    ranker: RankerConfig
    loss: SerializeAsAny[AbstractLoss.Config]
    training: TrainingSettings
    selection: Selection
    views_with_intents: bool = False
    """Learn the intent view and the intents of labelled pools too."""
    train_tokens: Artifact
    validation_tokens: Artifact
    start: Artifact | None = None
    """Checkpoint whose weights to start from; None starts from the backbone."""
    pseudo_labels: Artifact | None = None
    """Folder of pseudo-label shards to learn from beside the labelled pools; its digest is that of what is learnt, so
    that rules that select the same pairs share the student."""
    contrast: SerializeAsAny[AbstractContrast.Config] | None = None
    """What generated texts add to the loss; None learns from the pools alone."""
    generated: Artifact | None = None
    """Token file of the generated texts."""
    seed: int

    @property
    def loop_settings(self) -> TrainingSettings:
        """Optimiser and schedule."""
        return self.training

    @property
    def loop_seed(self) -> int:
        """The seed of all random draws."""
        return self.seed

    @property
    def reports_epochs(self) -> bool:
        """Validation is what a run is judged by."""
        return True

    @property
    def has_posterior(self) -> bool:
        """The answer head decides."""
        return self.ranker.head.has_posterior

    def build(self, device: torch.device) -> Training:
        """The ranker, its pools and validation."""
        ranker = Ranker(self.ranker)
        if self.start is not None:
            start_weights(ranker, self.start.path)
        store = TokenStore(self.train_tokens.path)
        curriculum = self._curriculum(store, ranker.layout)
        return Training(ranker, curriculum, self._validation(ranker, device, curriculum))

    def _curriculum(self, store: TokenStore, layout: Layout) -> AnswerCurriculum | PoolCurriculum:
        rows = self.selection.rows("train", "labelled", store.column("label_order"))
        labelled = [gold_labels(pool, with_intents=self.views_with_intents) for pool in store.pools(rows)]
        pseudo = pseudo_labelled(self.pseudo_labels.path, store) if self.pseudo_labels else []
        made = (
            answer_curriculum
            if self.contrast is None or self.generated is None
            else partial(
                AugmentedCurriculum, contrast=self.contrast.build(), generated=GeneratedStore(self.generated.path)
            )
        )
        return made(
            [*labelled, *pseudo],
            store,
            layout,
            self.loss.build(),
            self.training,
            num_intents=len(self.ranker.intents),
            seed=self.seed,
        )

    def _validation(self, ranker: Ranker, device: torch.device, curriculum: Curriculum) -> PlainValidation:
        store = TokenStore(self.validation_tokens.path)
        rows = self.selection.rows("validation", "all", store.column("label_order"))
        known = rows[store.column("label")[rows] >= 0]
        if not is_conditioned_on_support(ranker):
            return PlainValidation(store, known.tolist(), ranker.layout, self.training, device, link=self.ranker.link)
        assert isinstance(curriculum, AnswerCurriculum)
        conditioning = Conditioning(curriculum, self.training, device, self.seed)
        return PlainValidation(
            store, known.tolist(), ranker.layout, self.training, device, prepare=conditioning.complete
        )

    def add_posterior(self, checkpoint: Path, training: Training, engine: Engine) -> int:
        """Show the head the pairs that its posterior is computed from."""
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
    """Pairs and intents, or whole pools where the loss looks at those."""
    if isinstance(loss, AbstractPoolLoss):
        return PoolCurriculum(pools, store, layout, loss, settings, seed=seed)
    return AnswerCurriculum(pools, store, layout, loss, settings, num_intents=num_intents, seed=seed)
