"""Turning a job's description into models, data and results, in whichever process runs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import Field, SerializeAsAny, TypeAdapter

from icalib.core.component import Settings
from icalib.core.errors import SettingError
from icalib.core.paths import Stored
from icalib.core.seeding import child_seed
from icalib.core.stage_cache import Stage
from icalib.data.encoding import Layout, TokenStore
from icalib.data.generated import SyntheticStore
from icalib.data.selection import Selection
from icalib.generation.language_model import GeneratorJob, Writer, WritingCurriculum
from icalib.losses.binary import AbstractLoss
from icalib.losses.listwise import AbstractPoolLoss
from icalib.models.checkpoint import save_posterior
from icalib.models.config import RankerConfig
from icalib.models.model import Model
from icalib.models.ranker import Ranker, load_ranker, start_weights
from icalib.training.conditioning import Gather, condition, is_conditioned_on_support, only_one
from icalib.training.contrast import AbstractContrast, AugmentedCurriculum
from icalib.training.examples import PairLabels, gold_labels
from icalib.training.loop import Curriculum, EarlyStoppingData
from icalib.training.pairs import AnswerCurriculum, PlainValidation
from icalib.training.pools import PoolCurriculum
from icalib.training.post_training.curriculum import HeldOutWindows, post_training_curriculum
from icalib.training.post_training.task import AbstractPostTraining
from icalib.training.pretraining.intent_classifier import IntentClassifierJob
from icalib.training.pretraining.word_vectors import WordVectorJob
from icalib.training.pseudo_labelled import pseudo_labelled
from icalib.training.settings import TrainingSettings


@dataclass(frozen=True)
class Training:
    """What the loop needs."""

    model: Model
    curriculum: Curriculum
    validation: EarlyStoppingData | None


def prepare_training(job: AnyTrainJob, device: torch.device) -> Training:
    """Build the model, seeded the same in every process, and the data of a training job."""
    torch.manual_seed(child_seed(job.seed, "initial-weights"))
    if job.kind == "generator":
        writer = Writer(job.generator.model, job.generator)
        return Training(writer, WritingCurriculum(writer, job), None)
    if job.kind == "word_vectors":
        return Training(*job.build(), None)
    if job.kind == "intent_classifier":
        return Training(*job.build(device))
    if job.kind == "post_training":
        return _prepare_post_training(job, device)
    ranker = Ranker(job.ranker)
    if job.start is not None:
        start_weights(ranker, job.start)
    store = TokenStore(job.train_tokens)
    rows = job.selection.rows("train", "labelled", store.column("label_order"))
    labelled = [gold_labels(pool, with_intents=job.views_with_intents) for pool in store.pools(rows)]
    pseudo = pseudo_labelled(job.pseudo_labels, store) if job.pseudo_labels else []
    made = (
        answer_curriculum
        if job.contrast is None or job.made_up is None
        else partial(AugmentedCurriculum, contrast=job.contrast.build(), made_up=SyntheticStore(job.made_up))
    )
    curriculum = made(
        [*labelled, *pseudo],
        store,
        ranker.layout,
        job.loss.build(),
        job.training,
        num_intents=len(job.ranker.intents),
        seed=job.seed,
    )
    return Training(ranker, curriculum, _validation(job, ranker, device, curriculum))


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


def _prepare_post_training(job: TrainJob, device: torch.device) -> Training:
    settings = job.post_training
    assert settings is not None
    ranker = Ranker(job.ranker, masked_words=settings.masked_word_weight > 0, questions=settings.questions)
    curriculum = post_training_curriculum(settings, ranker, TokenStore(job.train_tokens), job.selection, "train")
    return Training(ranker, curriculum, _held_out(job, settings, ranker, device))


def _held_out(
    job: TrainJob, settings: AbstractPostTraining.Config, ranker: Ranker, device: torch.device
) -> HeldOutWindows | None:
    """Windows of validation contexts; None where those are too short to hold any."""
    few = settings.model_copy(update={"max_windows": settings.held_out_windows})
    store = TokenStore(job.validation_tokens)
    try:
        curriculum = post_training_curriculum(few, ranker, store, job.selection, "validation")
    except SettingError:
        return None
    return HeldOutWindows(curriculum, job.training, device, settings.seed)


def add_posterior(
    checkpoint: Path,
    training: Training,
    job: TrainJob,
    device: torch.device,
    *,
    rank: int = 0,
    world_size: int = 1,
    gather: Gather = only_one,
    with_chains: bool = True,
) -> int:
    """Compute the posterior of a checkpoint's weights from the pairs that they were trained on, and keep it there.

    Args:
        with_chains: False leaves a Pólya-Gamma head's support set without chains, for others to run them.

    Returns:
        How many times a matrix needed more jitter than planned.
    """
    assert isinstance(training.curriculum, AnswerCurriculum)
    ranker = load_ranker(checkpoint).to(device)
    condition(
        ranker, training.curriculum, job.training, device,
        seed=job.seed, rank=rank, world_size=world_size, gather=gather, with_chains=with_chains,
    )  # fmt: skip
    head = ranker.posterior_head
    assert head is not None
    if rank == 0:
        save_posterior(checkpoint, head.posterior_state())
    return head.num_jitters


def _validation(job: TrainJob, ranker: Ranker, device: torch.device, curriculum: Curriculum) -> PlainValidation:
    store = TokenStore(job.validation_tokens)
    rows = job.selection.rows("validation", "all", store.column("label_order"))
    known = rows[store.column("label")[rows] >= 0]
    if not is_conditioned_on_support(ranker):
        return PlainValidation(store, known.tolist(), ranker.layout, job.training, device, link=job.ranker.link)
    assert isinstance(curriculum, AnswerCurriculum)

    def look_at_support(ranker: Ranker) -> None:
        condition(ranker, curriculum, job.training, device, seed=job.seed)

    return PlainValidation(store, known.tolist(), ranker.layout, job.training, device, prepare=look_at_support)


class TrainJob(Settings):
    """One training run: everything a worker needs, with paths to what lies on disk.

    `kind` tells which curriculum: answers (labelled and pseudo-labelled pools) or post_training.
    """

    kind: Literal["answers", "post_training"]
    ranker: RankerConfig
    loss: SerializeAsAny[AbstractLoss.Config]
    training: TrainingSettings
    post_training: SerializeAsAny[AbstractPostTraining.Config] | None = None
    selection: Selection
    views_with_intents: bool = False
    """Learn the intent view and the intents of labelled pools too."""
    train_tokens: Stored
    validation_tokens: Stored
    start: Stored | None = None
    """Checkpoint whose weights to start from; None starts from the backbone."""
    pseudo_labels: Stored | None = None
    """Folder of pseudo-label shards to learn from beside the labelled pools."""
    contrast: SerializeAsAny[AbstractContrast.Config] | None = None
    """What made-up texts add to the loss; None learns from the pools alone."""
    made_up: Stored | None = None
    """Token file of the made-up texts."""
    seed: int


AnyTrainJob = Annotated[TrainJob | GeneratorJob | WordVectorJob | IntentClassifierJob, Field(discriminator="kind")]
"""A training run of a ranker, of a language model that makes up texts, or of what a ranker starts from."""


def read_train_job(text: str) -> AnyTrainJob:
    """A training job that travelled as JSON."""
    return TypeAdapter[AnyTrainJob](AnyTrainJob).validate_json(text)


@dataclass(frozen=True)
class Augmentation:
    """Texts that were made up for the labelled pools, and what they add to the loss."""

    texts: Stage
    contrast: AbstractContrast.Config
