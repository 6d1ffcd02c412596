"""Job that trains a cross-encoder on answers: on labelled pools, and optionally on pseudo labels or generated texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from pydantic import SerializeAsAny
from torch import Tensor
from typing_extensions import override

from icalib.core.job import Artifact
from icalib.data.encoding import Layout, TokenStore
from icalib.data.folds import Fold
from icalib.data.generated import GeneratedStore
from icalib.data.schema import Split
from icalib.data.selection import Selection
from icalib.losses.binary import AbstractLoss
from icalib.losses.listwise import AbstractPoolLoss
from icalib.models.checkpoint import CHECKPOINT_VERSION, RankerConfig, save_posterior
from icalib.models.ranker import Ranker, load_ranker, start_weights
from icalib.scoring.gain import GainRule
from icalib.scoring.offsets import Offsets
from icalib.training.conditioning import Conditioning
from icalib.training.contrast import AbstractContrast, AugmentedCurriculum
from icalib.training.examples import LabelledPools, PairLabels, gold_labels, training_rows
from icalib.training.job import Training, TrainingJob
from icalib.training.loop import Curriculum, EarlyStoppingData, Engine
from icalib.training.pairs import AnswerCurriculum, JointAnswerCurriculum
from icalib.training.pools import PoolCurriculum
from icalib.training.pseudo_labelled import pseudo_labelled
from icalib.training.settings import TrainingSettings
from icalib.training.validation import PlainValidation, PredictiveValidation, ValidationWithIntents, validation_rows
from icalib.uncertainty.estimator import AbstractEstimator, Deterministic

_VALIDATION_PAIRS = 16_384
"""Pairs behind the posterior that an epoch is judged by: all would add the forward passes of a whole epoch."""


class CrossEncoderJob(TrainingJob):
    """Trains a cross-encoder on answers."""

    version: ClassVar[int] = CHECKPOINT_VERSION + 21  # a small support has both classes
    reports_epochs: ClassVar[bool] = True

    ranker: RankerConfig
    loss: SerializeAsAny[AbstractLoss.Config]
    training: TrainingSettings
    selection: Selection
    estimator: SerializeAsAny[AbstractEstimator.Config] = Deterministic.Config()
    """Estimator that predicts with the trained ranker."""
    rule: GainRule | None = None
    """Rule that chooses the view that predicts; None: the plain one."""
    views_with_intents: bool = False
    """Also train on the intent view of labelled pools."""
    learns_intents: bool = True
    """And on their intents; False where another part predicts them."""
    train_tokens: Artifact
    validation_tokens: Artifact
    start: Artifact | None = None
    """Checkpoint with the initial weights; None starts from the backbone."""
    offsets: Artifact | None = None
    """Logits of the ranker's other parts, which this one corrects; None: 0."""
    pseudo_labels: Artifact | None = None
    """Folder of pseudo-label shards, used in addition to the labelled pools. Its digest covers only what is trained on,
    so rules that select the same pairs reuse the same student."""
    contrast: SerializeAsAny[AbstractContrast.Config] | None = None
    """Loss term of generated texts; None trains on the pools alone."""
    generated: Artifact | None = None
    """Token file of the generated texts."""
    left_out: Fold | None = None
    """Fold of the labelled pools that isn't trained on."""
    seed: int

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
        pools = self._labelled(store)
        if self.pseudo_labels is not None:
            pools = LabelledPools.joined([pools, pseudo_labelled(self.pseudo_labels.path, store)])
        if not self.learns_intents:
            pools = replace(pools, learn_intents_P=np.zeros_like(pools.learn_intents_P))
        curriculum = self._curriculum(pools, store, ranker)
        token_ids = None  # generated texts have others, too
        if self.generated is None:
            token_ids = curriculum.layout.token_ids(store.token_ids(pools.rows_P))
        return Training(ranker, curriculum, self._validation(ranker, device, curriculum), token_ids=token_ids)

    def _offsets(self, split: Split) -> Offsets | None:
        return None if self.offsets is None else Offsets.load(self.offsets.path / f"{split}.parquet")

    def _labelled(self, store: TokenStore) -> LabelledPools:
        rows = training_rows(store, self.selection, self.left_out)
        return gold_labels(store, rows, with_intents=self.views_with_intents)

    def _curriculum(self, pools: LabelledPools, store: TokenStore, ranker: Ranker) -> AnswerCurriculum | PoolCurriculum:
        layout, loss, seed = ranker.layout, self.loss.build(), self.seed
        if self.contrast is not None and self.generated is not None:
            contrast, generated = self.contrast.build(), GeneratedStore(self.generated.path)
            return AugmentedCurriculum(
                pools, store, layout, loss, self.training, 0, seed, contrast=contrast, generated=generated
            )
        joint_loss = ranker.answer_head.joint_loss if self.ranker.head.joint_objective else None
        return answer_curriculum(
            pools, store, layout, loss, self.training,
            num_intents=len(self.ranker.intents), seed=seed, joint_loss=joint_loss, offsets=self._offsets("train"),
        )  # fmt: skip

    def _validation(self, ranker: Ranker, device: torch.device, curriculum: Curriculum) -> EarlyStoppingData:
        """Return validation of what predicts; one plain pass does where passes don't differ and there is one view."""
        store = TokenStore(self.validation_tokens.path)
        given = (store, validation_rows(store, self.selection), self.training, device)
        offsets, prepare = self._offsets("validation"), None
        if ranker.posterior_head is not None:
            assert isinstance(curriculum, AnswerCurriculum)
            prepare = Conditioning(curriculum, self.training, device, self.seed, max_pairs=_VALIDATION_PAIRS).complete
        if self.rule is not None or self.estimator.needs == "dropout":
            estimator = self.estimator.for_validation()
            answers = PredictiveValidation(
                *given, estimator, self.rule, seed=self.seed, offsets=offsets, prepare=prepare
            )
        else:
            answers = PlainValidation(
                *given, estimator=self.estimator, link=self.ranker.link, offsets=offsets, prepare=prepare
            )
        learns_intents = self.views_with_intents and self.learns_intents and ranker.intent_head is not None
        return ValidationWithIntents(answers) if learns_intents else answers

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
    joint_loss: Callable[..., Tensor] | None = None,
    offsets: Offsets | None = None,
) -> AnswerCurriculum | PoolCurriculum:
    """Return a curriculum of pairs and intents, of whole pools if the loss needs these, or with one `joint_loss` of all
    pairs of a batch, however many workers share it.
    """
    if isinstance(loss, AbstractPoolLoss):
        return PoolCurriculum(pools, store, layout, loss, settings, seed=seed)
    given = (pools, store, layout, loss, settings, num_intents, seed, offsets)
    return AnswerCurriculum(*given) if joint_loss is None else JointAnswerCurriculum(*given, joint_loss=joint_loss)
