"""Job that trains a ranker on answers: on labelled pools, and optionally on pseudo labels or generated texts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

import torch
import torch.distributed as dist
from pydantic import SerializeAsAny
from typing_extensions import override

from icalib.core.errors import SettingError
from icalib.core.job import Artifact
from icalib.data.encoding import Layout, TokenStore
from icalib.data.generated import GeneratedStore
from icalib.data.selection import Selection
from icalib.losses.binary import AbstractLoss
from icalib.losses.listwise import AbstractPoolLoss
from icalib.models.checkpoint import CHECKPOINT_VERSION, save_posterior
from icalib.models.config import RankerConfig
from icalib.models.ranker import Ranker, load_ranker, replace_bi_encoder, start_weights
from icalib.scoring.gain import GainRule
from icalib.training.conditioning import Conditioning
from icalib.training.contrast import AbstractContrast, AugmentedCurriculum
from icalib.training.examples import PairLabels, gold_labels
from icalib.training.intent_validation import ValidationWithIntents
from icalib.training.job import Training, TrainingJob
from icalib.training.joint_pairs import JointAnswerCurriculum, JointLoss
from icalib.training.loop import Curriculum, EarlyStoppingData, Engine
from icalib.training.pairs import AnswerCurriculum, PlainValidation, remember_similarities, validation_rows
from icalib.training.pools import PoolCurriculum
from icalib.training.predictive_validation import PredictiveValidation
from icalib.training.pseudo_labelled import pseudo_labelled
from icalib.training.settings import TrainingSettings
from icalib.training.similarity_fit import drawn_to_fit, fit_start, fit_to_posterior
from icalib.uncertainty.estimator import AbstractEstimator, Deterministic


class TrainJob(TrainingJob):
    """Trains a ranker on answers."""

    version: ClassVar[int] = CHECKPOINT_VERSION + 13  # what predicts validates

    ranker: RankerConfig
    loss: SerializeAsAny[AbstractLoss.Config]
    training: TrainingSettings
    selection: Selection
    estimator: SerializeAsAny[AbstractEstimator.Config] = Deterministic.Config()
    """Estimator that predicts with the trained ranker."""
    rule: GainRule | None = None
    """Rule that chooses the view that predicts; None: the plain one."""
    views_with_intents: bool = False
    """Also train on the intent view and the intents of labelled pools."""
    train_tokens: Artifact
    validation_tokens: Artifact
    start: Artifact | None = None
    """Checkpoint with the initial weights; None starts from the backbone."""
    bi_encoder: Artifact | None = None
    """Checkpoint of a bi-encoder that was trained on the same labels; None keeps that of `start`."""
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
    def loop(self) -> tuple[TrainingSettings, int]:
        return self.training, self.seed

    @property
    @override
    def reports_epochs(self) -> bool:
        return True

    @property
    @override
    def has_posterior(self) -> bool:
        return self.ranker.head.has_posterior

    @property
    def start_ranks(self) -> bool:
        """Whether the initial weights rank, and neither intents nor a posterior need training steps."""
        head = self.ranker.head
        learns_intents = self.views_with_intents and self.pseudo_labels is None  # a student's teacher has learnt them
        needs_steps = learns_intents or (head.has_posterior and not head.looks_at_pairs)
        return self.ranker.similarity_start != "none" and not needs_steps

    @property
    def may_keep_start(self) -> bool:
        """Whether the initial weights may be the best ones.

        Those of a separate similarity have no dropout on the way to the logit until training has moved the head: all
        passes of MC dropout would be the same. A student starts as its teacher, whose head has moved.
        """
        only_bi_encoder = self.ranker.similarity_start == "separate" and self.pseudo_labels is None
        return self.start_ranks and not (only_bi_encoder and self.estimator.needs == "dropout")

    @override
    def build(self, device: torch.device) -> Training:
        if self.training.epochs == 0 and not self.start_ranks:
            raise SettingError(
                "with `epochs` 0 the initial weights are the result, and these don't rank yet: they need a "
                "`similarity_start`, and epochs to learn intents or sum up a posterior. Set `epochs` to 1 or more."
            )
        ranker = Ranker(self.ranker)
        has_head = self.start is not None and start_weights(ranker, self.start.path)
        has_head = has_head and self.ranker.head.pairs_for_posterior is None  # which answers by its posterior only
        other_bi_encoder = self.bi_encoder is not None and replace_bi_encoder(ranker, self.bi_encoder.path)
        store = TokenStore(self.train_tokens.path)
        labelled = self._labelled(store)
        pools = [*labelled, *(pseudo_labelled(self.pseudo_labels.path, store) if self.pseudo_labels else [])]
        if self.training.epochs:
            remember_similarities(ranker, store, [pool.row for pool in pools], self.training, device)
        curriculum = self._curriculum(pools, store, ranker)
        if other_bi_encoder or self.pseudo_labels is None:  # the logits of its teacher fit a student
            self._fit_start(ranker, labelled, store, curriculum, device, has_head=has_head)
        validation = self._validation(ranker, device, curriculum)
        ranker.skips_encoder = not self.training.epochs and ranker.is_at_start
        return Training(ranker, curriculum, validation, start_ranks=self.may_keep_start)

    def _fit_start(
        self,
        ranker: Ranker,
        labelled: Sequence[PairLabels],
        store: TokenStore,
        curriculum: Curriculum,
        device: torch.device,
        *,
        has_head: bool,
    ) -> None:
        """Fit the initial logits.

        A bi-encoder or a posterior that has seen the labelled pools ranks them better than any others, so the fit is to
        validation pools.
        """
        head = self.ranker.head
        has_posterior = self.estimator.needs == "posterior" and head.has_posterior and head.looks_at_pairs
        if self.bi_encoder is not None or has_posterior:
            store = TokenStore(self.validation_tokens.path)
            rows = validation_rows(store, self.selection)
            has_head = has_head and not ranker.is_at_start
        else:
            rows = [pool.row for pool in labelled]
        rows = drawn_to_fit(rows, self.seed)
        remember_similarities(ranker, store, rows, self.training, device)
        pools = [gold_labels(pool, with_intents=False) for pool in store.pools(rows)]
        fits_slope = not has_head or self.bi_encoder is not None  # a post-trained head has fitted it
        fit_start(ranker, pools, store, self.training, device, self.seed, has_head=has_head, fits_slope=fits_slope)
        if has_posterior:
            assert isinstance(curriculum, AnswerCurriculum)
            conditioning = Conditioning(curriculum, self.training, device, self.seed)
            rank, world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
            complete = partial(conditioning.complete, rank=rank, world_size=world_size)
            fit_to_posterior(ranker, pools, store, self.training, device, self.seed, complete)

    def _labelled(self, store: TokenStore) -> list[PairLabels]:
        rows = self.selection.rows("train", "labelled", store.column("label_order"))
        return [gold_labels(pool, with_intents=self.views_with_intents) for pool in store.pools(rows)]

    def _curriculum(
        self, pools: Sequence[PairLabels], store: TokenStore, ranker: Ranker
    ) -> AnswerCurriculum | PoolCurriculum:
        layout, loss = ranker.layout, self.loss.build()
        if self.contrast is not None and self.generated is not None:
            generated = GeneratedStore(self.generated.path)
            return AugmentedCurriculum(
                pools, store, layout, loss, self.training,
                seed=self.seed, contrast=self.contrast.build(), generated=generated,
            )  # fmt: skip
        joint_loss = ranker.answer_head.joint_loss if self.ranker.head.joint_objective else None
        return answer_curriculum(
            pools, store, layout, loss, self.training,
            num_intents=len(self.ranker.intents), seed=self.seed, joint_loss=joint_loss,
        )  # fmt: skip

    def _validation(self, ranker: Ranker, device: torch.device, curriculum: Curriculum) -> EarlyStoppingData:
        """Return validation of what predicts; one plain pass does where passes don't differ and there is one view."""
        store = TokenStore(self.validation_tokens.path)
        rows = validation_rows(store, self.selection)
        prepare = None
        if ranker.posterior_head is not None:
            assert isinstance(curriculum, AnswerCurriculum)
            prepare = Conditioning(curriculum, self.training, device, self.seed).complete
        answers: EarlyStoppingData
        if self.rule is not None or self.estimator.needs == "dropout":
            answers = PredictiveValidation(
                store, rows, self.training, device, self.estimator, self.rule, seed=self.seed, prepare=prepare
            )
        else:
            answers = PlainValidation(
                store, rows, ranker.layout, self.training, device, link=self.ranker.link, prepare=prepare
            )
        if ranker.intent_head is None or not self.views_with_intents:
            return answers
        return ValidationWithIntents(answers, store, rows, self.training, device)

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
    joint_loss: JointLoss | None = None,
) -> AnswerCurriculum | PoolCurriculum:
    """Return a curriculum of pairs and intents, or of whole pools if the loss needs these.

    With `joint_loss`, that of the head, the pairs of a batch have one loss, however many workers share the batch.
    """
    if isinstance(loss, AbstractPoolLoss):
        return PoolCurriculum(pools, store, layout, loss, settings, seed=seed)
    if joint_loss is not None:
        return JointAnswerCurriculum(
            pools, store, layout, loss, settings, num_intents=num_intents, seed=seed, joint_loss=joint_loss
        )
    return AnswerCurriculum(pools, store, layout, loss, settings, num_intents=num_intents, seed=seed)
