"""The stages of a run: computes jobs with an executor unless they are cached, and those that all trainings share; what
the stages of a ranker's parts take and give."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from icalib.core.events import Emit, EpochFinished, Message
from icalib.core.files import read_json, read_json_list
from icalib.core.job import Artifact, Job, LocalJob, ShardedJob
from icalib.core.stage_cache import JobCache, Stage, StageName
from icalib.data.logs import LOG_TOKENS
from icalib.data.pools import as_pools, read_column, read_rows
from icalib.data.schema import SPLITS, PoolSet, Split
from icalib.data.selection import Selection, Subset
from icalib.encoders.iart import IART
from icalib.encoders.transformer import AbstractEncoder
from icalib.heads.linear import LinearHead
from icalib.models.checkpoint import RankerConfig
from icalib.parts.intent_encoder import IntentEncoderJob
from icalib.parts.job import PartName
from icalib.parts.similarity import SimilarityJob
from icalib.parts.sum import SumOfParts
from icalib.scoring.gain import IntentChoice
from icalib.stages.composition import Composition
from icalib.stages.executor import Executor
from icalib.stages.resources import Resources
from icalib.stages.tokens import TokenizeJob, TokenizeLogsJob
from icalib.training.domain_pretraining.contrastive import Contrastive
from icalib.training.domain_pretraining.job import ContrastiveJob, DomainPretrainJob
from icalib.training.domain_pretraining.task import AbstractDomainPretraining, WindowTask
from icalib.training.job import TrainingJob, best_epoch
from icalib.training.loop import validation_points
from icalib.training.pretraining import Pretraining
from icalib.training.pretraining.intent_classifier import IntentClassifierJob
from icalib.training.pretraining.word_vectors import WordVectorJob
from icalib.training.pseudo_labelled import SOFT_LABELS_FILE
from icalib.uncertainty.estimator import AbstractEstimator


@dataclass(frozen=True)
class Scoring:
    """Which pools of a split are scored, and how: `sample` random ones, or all.

    `intents` says which predicted ones the intent view has; None: only the plain view is scored.
    """

    split: Split
    of: Subset
    estimator: AbstractEstimator.Config
    intents: IntentChoice | None = None
    sample: int | None = None


@dataclass(frozen=True)
class Trained:
    """The trained parts of a ranker, and the fitted weights of their sum.

    Args:
        name: of the training, in the run.
        parts: checkpoints.
        fit: parts.json; None: one part with w = 1 and b = 0.
        trainings: the stages that trained the parts, for reports.
        first: the model of round 0, whose parts have seen no pseudo labels; None: this one.
        out_of_fold: the earlier parts' columns of the labelled pools, by parts that were trained without them.
    """

    name: StageName
    parts: Mapping[PartName, Artifact]
    fit: Artifact | None = None
    trainings: tuple[Stage, ...] = ()
    first: Trained | None = None
    out_of_fold: Mapping[PartName, tuple[Artifact, ...]] = field(default_factory=dict)

    @property
    def sum(self) -> SumOfParts:
        """The fitted sum."""
        return SumOfParts.fitted(self.fit.path if self.fit else None, self.parts)


@dataclass(frozen=True)
class Student:
    """What a student learns from, beside the labelled pools.

    Args:
        teacher: its parts start the student's.
        pseudo_labels: stage with the labels of unlabelled pools.
        scores_name, scoring: of the scores that they were made from.
        is_control: the labels are the gold labels of labelled pools, which are repeated.
    """

    teacher: Trained
    pseudo_labels: Stage
    scores_name: StageName
    scoring: Scoring
    is_control: bool = False


def checkpoint(stage: Stage) -> Artifact:
    """Return the checkpoint in a training stage."""
    return stage.artifact("checkpoint")


_MIN_EXAMPLES = 8  # of a worker per update; with fewer, a GPU spends most of its time on exchanging gradients


@dataclass(frozen=True, kw_only=True)
class Stages:
    """Computes the stages of a run.

    Args:
        composition: the components of the ranker.
        folder, pool_set: the pools.
        selection: those that the run uses.
        splits: those that are tokenised; training needs all.
    """

    composition: Composition
    folder: Path
    pool_set: PoolSet
    selection: Selection
    seed: int
    cache: JobCache
    executor: Executor
    emit: Emit
    splits: tuple[Split, ...] = SPLITS

    @property
    def data(self) -> Artifact:
        """The pool folder."""
        return Artifact(path=self.folder, digest=self.pool_set.digest)

    @property
    def soft_labels(self) -> Artifact | None:
        """The pool folder's soft labels, if it has any; the similarity part learns from them."""
        if not self.pool_set.soft_labels:
            return None
        digest = self.pool_set.files[SOFT_LABELS_FILE]["sha256"]
        return Artifact(path=self.folder / SOFT_LABELS_FILE, digest=digest)

    @property
    def encoder(self) -> AbstractEncoder.Config:
        """The ranker's encoder."""
        return self.composition.encoder

    @property
    def estimator(self) -> AbstractEstimator.Config:
        """The ranker's estimator."""
        return self.composition.uncertainty

    def seed_of(self, name: StageName) -> int:
        """Return the seed of a stage: that of its round."""
        return self.seed * 1000 + name.round

    @cached_property
    def initial(self) -> tuple[RankerConfig, Stage | None]:
        """The cross-encoder, and the stage with its initial weights: domain pre-training or pretraining, if any."""
        composition = self.composition
        ranker = RankerConfig(encoder=composition.encoder, head=composition.head, link=composition.loss.link)
        if composition.pretraining is not None:
            return self._pretrain(ranker, composition.pretraining)
        task = composition.domain_pretraining
        return ranker, None if task is None else self._domain_pretrain(ranker, task)

    @property
    def start(self) -> Artifact | None:
        """The checkpoint with the initial weights; None: the backbone's."""
        return checkpoint(self.initial[1]) if self.initial[1] else None

    @cached_property
    def tokens_stage(self) -> Stage:
        """The stage with the tokens of all splits."""
        job = TokenizeJob(
            data=self.data,
            backbone=self.encoder.backbone,
            budget=self.encoder.budget,
            num_pools={split: self.pool_set.num_pools[split] for split in self.splits},
        )
        return self.run(StageName("tokens"), job)

    def tokens(self, split: Split) -> Artifact:
        """The folder with the tokens of a split."""
        return self.tokens_stage.artifact(split)

    def _domain_pretrain(self, ranker: RankerConfig, task: AbstractDomainPretraining.Config) -> Stage:
        """Pre-train on the dialogues of the corpus; one stage for all labelled fractions, seeds and methods."""
        name = StageName("domain-pretraining")
        if isinstance(task, Contrastive.Config):
            job = ContrastiveJob(
                backbone=self.encoder.backbone,
                budget=self.encoder.budget,
                task=task,
                selection=self.selection.for_training(labelled_fraction=1.0),
                train_tokens=self.tokens("train"),
                validation_tokens=self.tokens("validation"),
                test_tokens=self.tokens("test"),
                logs=self._log_tokens() if task.targets != "windows" and self.pool_set.num_logs else None,
            )
            return self.run(name, job)
        assert isinstance(task, WindowTask.Config)
        job = DomainPretrainJob(
            ranker=_bare(ranker),
            task=task,
            selection=self.selection.for_training(labelled_fraction=1.0),
            train_tokens=self.tokens("train"),
        )
        return self.run(name, job)

    def _log_tokens(self) -> Artifact:
        job = TokenizeLogsJob(
            logs=Artifact(path=self.folder, digest=self.pool_set.logs_digest),
            num_dialogues=self.pool_set.num_logs,
            backbone=self.encoder.backbone,
            budget=self.encoder.budget,
        )
        return self.run(StageName("log-tokens"), job).artifact(LOG_TOKENS)

    def _pretrain(self, ranker: RankerConfig, settings: Pretraining) -> tuple[RankerConfig, Stage | None]:
        """Train word vectors and an intent classifier that initialise the encoder.

        Return the ranker with the classifier's intents, and the stage with the initial weights.
        """
        encoder = ranker.encoder
        assert isinstance(encoder, IART.Config)
        words = None
        if settings.word_vectors is not None:
            vectors = WordVectorJob(
                settings=settings.word_vectors,
                backbone=encoder.backbone,
                width=encoder.embedding_size,
                train_tokens=self.tokens("train"),
                selection=self.selection.for_training(labelled_fraction=1.0),
            )
            words = self.run(StageName("word-vectors"), vectors)
        if settings.intent_classifier is None:
            return ranker, words
        if not self._has_labelled_intents():
            reason = "no labelled utterance has intents, so no intent classifier is trained"
            self.emit(Message(f"{reason}: all turns of a context have the same weight"))
            return ranker, words
        job = IntentClassifierJob(
            settings=settings.intent_classifier,
            encoder=encoder,
            num_intents=len(self.pool_set.intents),
            train_tokens=self.tokens("train"),
            validation_tokens=self.tokens("validation"),
            selection=self.selection,
            start=checkpoint(words) if words else None,
        )
        classifier = self.run(StageName("intent-classifier"), job)
        return ranker.model_copy(update={"intents": self.pool_set.intents}), classifier

    def _has_labelled_intents(self) -> bool:
        """Return whether an utterance of the labelled pools has an intent of the pool set."""
        known = set(self.pool_set.intents)
        rows = self.selection.rows("train", "labelled", read_column(self.folder, "train", "label_order"))
        pools = as_pools(read_rows(self.folder, "train", rows))
        return any(u.text and known.intersection(u.intents) for pool in pools for u in pool.context)

    def run(self, name: StageName, job: Job, executor: Executor | None = None) -> Stage:
        """Return the stage of a job: from the cache, or computed by the executor."""
        executor = executor or self.executor
        if isinstance(job, TrainingJob):
            return self._train(name, job, executor)

        def build(folder: Path) -> None:
            if isinstance(job, ShardedJob):
                executor.map(job, folder, str(name), self.emit)
            else:
                assert isinstance(job, LocalJob)
                job.compute(folder, str(name), self.emit)

        return self.cache.run(name, job, build)

    def _train(self, name: StageName, job: TrainingJob, executor: Executor) -> Stage:
        max_epochs = job.loop_settings.epochs
        if job.reports_epochs:
            self.emit(EpochFinished(str(name), max_epochs, ()))  # lets consumers abandon the run before training

        def build(folder: Path) -> None:
            if note := _small_batches(name, job, executor.resources):
                self.emit(Message(note))
            executor.train(job, folder, str(name), self.emit)

        stage = self.cache.run(name, job, build)
        if job.reports_epochs:
            points = validation_points(read_json_list(stage.path / "curve.json"))
            self.emit(EpochFinished(str(name), max_epochs, points))
        if not stage.reused:
            self._note(name, job, stage)
        return stage

    def _note(self, name: StageName, job: TrainingJob, stage: Stage) -> None:
        if num_jitters := read_json(stage.path / "result.json").get("num_jitters"):
            problem = "a matrix of the Gaussian process could only be factorised with more jitter than planned"
            cure = "if this is frequent, lower head_learning_rate or head.output_scale"
            self.emit(Message(f"{name}: {num_jitters} times, {problem}; {cure}"))
        if (
            job.loop_settings.epochs
            and isinstance(job, SimilarityJob | IntentEncoderJob)
            and not best_epoch(stage.path)
        ):
            start = "teacher" if name.round else "start"
            kept = f"the {start}, which is kept" if isinstance(job, SimilarityJob) else "regressions, which are kept"
            self.emit(Message(f"{name}: no epoch was better on validation than {kept}"))


def _small_batches(name: StageName, job: TrainingJob, resources: Resources) -> str:
    """Return a note about a training whose updates leave several GPUs nearly idle, or nothing."""
    workers, batch_size = resources.num_workers, job.loop_settings.batch_size
    if not resources.use_gpu or workers == 1 or batch_size >= _MIN_EXAMPLES * workers:
        return ""
    return (
        f"{name}: `batch_size` {batch_size} counts over all {workers} workers, so each GPU has at most "
        f"{math.ceil(batch_size / workers)} examples per update and mostly waits for the others. Raise `batch_size` to "
        f"{_MIN_EXAMPLES * workers} or more, `max_tokens_per_batch` and `learning_rate` with it, or use fewer "
        "--workers; where memory runs out, raise `gradient_accumulation`, too"
    )


def _bare(ranker: RankerConfig) -> RankerConfig:
    """Return the plain ranker that methods share in domain pre-training, without their intents, heads and losses."""
    plain = {"head": LinearHead.Config(), "starts_at_zero": False, "intents": (), "link": "sigmoid"}
    return ranker.model_copy(update={"encoder": ranker.encoder.for_domain_pretraining(), **plain})
