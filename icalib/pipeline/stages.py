"""The workbench that users run: stages from the cache, else on Ray."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from icalib.core.errors import SettingError
from icalib.core.files import read_json
from icalib.core.seeding import child_seed
from icalib.core.stage_cache import Stage, StageCache
from icalib.data.encoding import TokenStore
from icalib.data.generated import MADE_UP, Wanted
from icalib.data.pools import as_pools, iter_pools
from icalib.data.schema import SPLITS, PoolSet, Split
from icalib.data.selection import Part, Selection
from icalib.distributed.generating import generate
from icalib.distributed.scoring import score
from icalib.distributed.session import Resources
from icalib.distributed.training import SPECTRAL_NORMS, Watcher, train
from icalib.encoders.backbone import Tokenizer, backbone_digest
from icalib.encoders.iart import IART
from icalib.encoders.transformer import AbstractEncoder
from icalib.generation.generator import AbstractGenerator, GenerateJob, Task
from icalib.generation.language_model import GeneratorJob, LanguageModel
from icalib.generation.shards import write_synthetic_tokens
from icalib.heads.linear import LinearHead
from icalib.losses.binary import AbstractLoss, BinaryCrossEntropy
from icalib.methods.composition import ScoringSettings
from icalib.models.checkpoint import CHECKPOINT_VERSION
from icalib.models.config import RankerConfig
from icalib.scoring.job import ScoreJob, Shards
from icalib.training.job import AnyTrainJob, Augmentation, TrainJob
from icalib.training.loop import validation_points
from icalib.training.post_training.task import AbstractPostTraining
from icalib.training.pretraining.intent_classifier import IntentClassifierJob, IntentLearning, labelled_utterances
from icalib.training.pretraining.settings import Preliminary
from icalib.training.pretraining.word_vectors import WordVectorJob, WordVectors
from icalib.training.pseudo_labelled import pseudo_label_digest
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import AbstractEstimator


class Reporter(Protocol):
    """Hears what goes on, for people."""

    def advance(self, name: str, done: float, total: float | None, note: str = "") -> None:
        """So much of a stage is done."""
        ...

    def message(self, text: str) -> None:
        """Anything else worth a line."""
        ...


OnEpochs = Callable[[str, int, Sequence[dict[str, Any]]], None]
"""Hears, when a training on answers begins, after each of its epochs and once more at its end, the stage's name, its
epochs at most, and validation's points of the learning curve so far; may raise `Abandoned` to end the training."""


def unheard(name: str, epochs: int, points: Sequence[dict[str, Any]]) -> None:
    """An `OnEpochs` that lets all epochs pass."""


class RayWorkbench:
    """Stages of one run.

    Args:
        after_stage: called after each stage but scoring with (name, round, stage).
        on_epochs: see `OnEpochs`.
        splits: what is tokenised; training needs all.
    """

    def __init__(
        self,
        *,
        data: Path,
        pool_set: PoolSet,
        selection: Selection,
        encoder: AbstractEncoder.Config,
        scoring: ScoringSettings,
        cache: StageCache,
        resources: Resources,
        reporter: Reporter,
        seed: int,
        after_stage: Callable[[str, int, Stage], None] = lambda _name, _number, _stage: None,
        on_epochs: OnEpochs = unheard,
        splits: Sequence[Split] = SPLITS,
    ) -> None:
        self._data, self._pool_set, self._selection = data, pool_set, selection
        self._encoder, self._scoring, self._cache = encoder, scoring, cache
        self._resources, self._reporter, self._seed = resources, reporter, seed
        self._after_stage, self._on_epochs, self._splits = after_stage, on_epochs, splits
        self._backbone_digest = backbone_digest(encoder.backbone)
        self._tokens = self._tokenize()

    def check_labels(self) -> None:
        """Find missing labels now rather than after hours of training."""
        for split in SPLITS:
            store = self.store(split)
            rows = self._selection.rows(split, "labelled", store.column("label_order"))
            if not (store.column("label")[rows] >= 0).any():
                raise SettingError(
                    f"no {split} pool of {self._data} has a known right candidate (`label` is -1 in all that this run "
                    "uses). Training needs labelled pools, thresholds and figures need labelled validation and test."
                )

    def _tokenize(self) -> Stage:
        inputs = {"data": self._pool_set.digest, "backbone": self._backbone_digest, **self._encoder.budget.model_dump()}
        kind = "tokens" if len(self._splits) == len(SPLITS) else f"tokens-{'-'.join(self._splits)}"
        return self._cache.run("tokens", inputs, self._write_tokens, kind=kind)

    def _write_tokens(self, folder: Path) -> None:
        from icalib.data.encoding import write_tokens

        tokenize = Tokenizer(self._encoder.backbone)
        for split in self._splits:
            done = 0

            def batches(split: Split = split) -> Any:
                nonlocal done
                for batch in iter_pools(self._data, split):
                    yield list(as_pools(batch))
                    done += batch.num_rows
                    self._reporter.advance("tokens", done, self._pool_set.num_pools[split], split)

            write_tokens(folder / f"{split}.arrow", batches(), tokenize, self._pool_set.intents, self._encoder.budget)

    def tokens(self, split: Split) -> Path:
        """The token file of a split."""
        return self._tokens.path / f"{split}.arrow"

    def store(self, split: Split) -> TokenStore:
        """The tokens of a split."""
        return TokenStore(self.tokens(split))

    def _common_inputs(self) -> dict[str, Any]:
        return {
            "tokens": self._tokens.digest,
            "selection": self._selection.model_dump(mode="json"),
            "checkpoint_version": CHECKPOINT_VERSION,
        }

    def post_train(self, ranker: RankerConfig, settings: AbstractPostTraining.Config) -> Stage:
        """Learn from the corpus' own dialogues; one stage for all labelled fractions, seeds and methods."""
        # Intents, labels, the kind of head and the loss play no part, so one plain ranker serves all methods.
        bare = ranker.model_copy(
            update={
                "encoder": ranker.encoder.for_post_training(),
                "head": LinearHead.Config(),
                "similarity_start": "none"
                if ranker.similarity_start == "none" or not settings.learns_answers
                else "together",
                "intents": (),
                "link": "sigmoid",
            }
        )
        selection = self._selection.for_training(labelled_fraction=1.0)
        job = TrainJob(
            kind="post_training",
            ranker=bare,
            loss=BinaryCrossEntropy.Config(),
            training=settings.training,
            post_training=settings,
            selection=selection,
            train_tokens=self.tokens("train"),
            validation_tokens=self.tokens("validation"),
            seed=settings.seed,
        )
        inputs = {
            **self._common_inputs(),
            "selection": selection.model_dump(mode="json"),
            "ranker": _portable(bare, self._backbone_digest),
            "settings": settings.model_dump(mode="json"),
        }
        return self._train("post-training", 0, inputs, job, self._resources)

    def preliminary(self, ranker: RankerConfig, settings: Preliminary) -> tuple[RankerConfig, Stage | None]:
        """Word vectors and an intent classifier for an encoder that starts from them.

        Returns:
            The ranker, with the intents that the classifier tells, and the checkpoint to start from.
        """
        encoder = ranker.encoder
        assert isinstance(encoder, IART.Config)
        words = self._word_vectors(encoder, settings.word_vectors) if settings.word_vectors is not None else None
        if settings.intent_classifier is None:
            return ranker, words
        if not labelled_utterances(self.tokens("train"), "train", self._selection):
            self._reporter.message(
                "no labelled utterance has intents to learn a classifier from: all turns of a context weigh the same"
            )
            return ranker, words
        classifier = self._intent_classifier(encoder, settings.intent_classifier, words)
        return ranker.model_copy(update={"intents": self._pool_set.intents}), classifier

    def _word_vectors(self, encoder: IART.Config, settings: WordVectors) -> Stage:
        job = WordVectorJob(
            settings=settings,
            backbone=encoder.backbone,
            width=encoder.embedding_size,
            train_tokens=self.tokens("train"),
            selection=self._selection.for_training(labelled_fraction=1.0),
        )
        inputs = {
            **self._common_inputs(),
            "selection": job.selection.model_dump(mode="json"),
            "width": job.width,
            "settings": settings.model_dump(mode="json"),
        }
        return self._train("word-vectors", 0, inputs, job, self._resources)

    def _intent_classifier(self, encoder: IART.Config, settings: IntentLearning, words: Stage | None) -> Stage:
        job = IntentClassifierJob(
            settings=settings,
            encoder=encoder,
            num_intents=len(self._pool_set.intents),
            train_tokens=self.tokens("train"),
            validation_tokens=self.tokens("validation"),
            selection=self._selection,
            start=words.path / "checkpoint" if words else None,
        )
        inputs = {
            **self._common_inputs(),
            "start": words.digest if words else None,
            "shape": [encoder.embedding_size, encoder.intent_filters],
            "settings": settings.model_dump(mode="json"),
        }
        return self._train("intent-classifier", 0, inputs, job, self._resources)

    def train_members(
        self,
        names: Sequence[str],
        *,
        ranker: RankerConfig,
        loss: AbstractLoss.Config,
        training: TrainingSettings,
        start: Stage | None,
    ) -> list[Stage]:
        """Train independent members: the first as if alone, the others side by side as parallel Ray Train runs."""

        def member(place: int, resources: Resources) -> Stage:
            return self._train_answers(
                names[place], resources, ranker=ranker, loss=loss, training=training, with_intents=False, start=start,
                pseudo_labels=None, augmentation=None, number=0,
                seed=child_seed(self._seed, "member", place) if place else None,
            )  # fmt: skip

        first = member(0, self._resources)
        others = range(1, len(names))
        if not others:
            return [first]
        share, room = self._resources.shared_by(len(others))
        with ThreadPoolExecutor(room) as pool:
            return [first, *pool.map(lambda place: member(place, share), others)]

    def train(
        self,
        name: str,
        *,
        ranker: RankerConfig,
        loss: AbstractLoss.Config,
        training: TrainingSettings,
        with_intents: bool,
        start: Stage | None,
        pseudo_labels: Stage | None = None,
        augmentation: Augmentation | None = None,
        number: int = 0,
    ) -> Stage:
        """Train on the labelled pools (and pseudo labels, or made-up texts)."""
        return self._train_answers(
            name, self._resources, ranker=ranker, loss=loss, training=training, with_intents=with_intents, start=start,
            pseudo_labels=pseudo_labels, augmentation=augmentation, number=number, seed=None,
        )  # fmt: skip

    def _train_answers(
        self,
        name: str,
        resources: Resources,
        *,
        ranker: RankerConfig,
        loss: AbstractLoss.Config,
        training: TrainingSettings,
        with_intents: bool,
        start: Stage | None,
        pseudo_labels: Stage | None,
        augmentation: Augmentation | None,
        number: int,
        seed: int | None,
    ) -> Stage:
        seed = self._seed * 1000 + number if seed is None else seed
        made_up = self._tokenize_texts(augmentation.texts) if augmentation else None
        job = TrainJob(
            kind="answers",
            ranker=ranker,
            loss=loss,
            training=training,
            selection=self._selection,
            views_with_intents=with_intents,
            train_tokens=self.tokens("train"),
            validation_tokens=self.tokens("validation"),
            start=start.path / "checkpoint" if start else None,
            pseudo_labels=pseudo_labels.path if pseudo_labels else None,
            contrast=augmentation.contrast if augmentation else None,
            made_up=made_up.path / MADE_UP if made_up else None,
            seed=seed,
        )
        inputs = {
            **self._common_inputs(),
            "ranker": _portable(ranker, self._backbone_digest),
            "loss": loss.model_dump(mode="json"),
            "training": training.model_dump(mode="json"),
            "with_intents": with_intents,
            "start": start.digest if start else None,
            # what is learnt, not the rule that chose it: trials of a sweep whose rules agree share the student
            "pseudo_labels": pseudo_label_digest(pseudo_labels.path) if pseudo_labels else None,
            "contrast": augmentation.contrast.model_dump(mode="json") if augmentation else None,
            "made_up": made_up.digest if made_up else None,
            "seed": seed,
        }
        return self._train(name, number, inputs, job, resources)

    def generate(self, wanted: Wanted, num_answers: int, generator: AbstractGenerator.Config) -> Stage:
        """Make up texts for the labelled pools, after fine-tuning the models that the generator needs."""
        selection = self._selection.for_training()
        known = {
            "data": self._pool_set.digest,
            "selection": selection.model_dump(mode="json"),
            "checkpoint_version": CHECKPOINT_VERSION,
        }
        models: dict[Task, Stage] = (
            {task: self._train_generator(task, generator, selection, known) for task in generator.learnt_tasks(wanted)}
            if isinstance(generator, LanguageModel.Config)
            else {}
        )
        checkpoints: dict[Task, Path] = {task: stage.path / "checkpoint" for task, stage in models.items()}
        job = GenerateJob(
            data=self._data,
            selection=selection,
            wanted=wanted,
            num_answers=num_answers,
            generator=generator,
            models=checkpoints,
        )
        inputs = {
            **known,
            "wanted": wanted,
            "num_answers": num_answers,
            "generator": generator.model_dump(mode="json", exclude={"model"}),  # where it lies plays no part
            "models": {task: stage.digest for task, stage in models.items()},
        }
        name = wanted.replace("_", "-")
        stage = self._cache.run(
            name, inputs, lambda folder: generate(job, folder, self._resources, partial(self._reporter.advance, name))
        )
        self._after_stage(name, 0, stage)
        return stage

    def _train_generator(
        self, task: Task, generator: LanguageModel.Config, selection: Selection, known: dict[str, Any]
    ) -> Stage:
        job = GeneratorJob(task=task, generator=generator, data=self._data, selection=selection)
        inputs = {
            **known,
            "task": task,
            "model": backbone_digest(generator.model),
            "training": generator.training.model_dump(mode="json"),
            "lengths": [generator.max_source_tokens, generator.max_target_tokens],
            "seed": job.seed,
        }
        return self._train(f"{task}-generator", 0, inputs, job, self._resources)

    def _tokenize_texts(self, texts: Stage) -> Stage:
        """Made-up texts as the encoder's ids."""
        budget, backbone = self._encoder.budget, self._encoder.backbone
        inputs = {"texts": texts.digest, "backbone": self._backbone_digest, **budget.model_dump()}
        return self._cache.run(
            f"{texts.name}/tokens",
            inputs,
            lambda folder: write_synthetic_tokens(texts.path, folder / MADE_UP, Tokenizer(backbone), budget),
            kind="made-up-tokens",
        )

    def _train(self, name: str, number: int, inputs: dict[str, Any], job: AnyTrainJob, resources: Resources) -> Stage:
        on_epochs = self._on_epochs if job.kind == "answers" else unheard
        watcher = _TrainingWatcher(name, self._reporter, partial(on_epochs, name, job.training.epochs))
        watcher.validated(())  # ends it before it begins where the run was given up
        stage = self._cache.run(
            name, inputs, lambda folder: train(job, folder, resources, watcher), kind=name.rpartition("/")[2]
        )
        self._after_stage(name, number, stage)
        watcher.validated(validation_points(read_json(stage.path / "curve.json")))
        if not stage.reused:
            self._tell_result(name, read_json(stage.path / "result.json"), resources)
        return stage

    def _tell_result(self, name: str, result: dict[str, Any], resources: Resources) -> None:
        if result["world_size"] < resources.num_workers:
            self._reporter.message(
                f"{name}: {result['world_size']} of {resources.num_workers} workers finished it after nodes were lost; "
                "its dropout masks are not those of an undisturbed training"
            )
        if result.get("num_jitters"):
            self._reporter.message(
                f"{name}: {result['num_jitters']} times a matrix of the Gaussian process could be factored only after "
                "more was added to its diagonal than planned; if that is often, lower head_learning_rate or "
                "head.output_scale"
            )

    def score(
        self,
        name: str,
        model: Stage,
        *,
        split: Split,
        part: Part,
        estimator: AbstractEstimator.Config,
        with_intents: bool,
        number: int = 0,
        sample: int | None = None,
    ) -> Shards:
        """Score a part of a split with a model, or `sample` pools of it drawn at random."""
        return self.score_checkpoint(
            name, model.path / "checkpoint", model.digest, split=split, part=part, estimator=estimator,
            with_intents=with_intents, number=number, sample=sample,
        )  # fmt: skip

    def score_checkpoint(
        self,
        name: str,
        checkpoint: Path,
        digest: str,
        *,
        split: Split,
        part: Part,
        estimator: AbstractEstimator.Config,
        with_intents: bool,
        number: int = 0,
        sample: int | None = None,
    ) -> Shards:
        """Score with a checkpoint that may lie anywhere; `digest` tells its model from others."""
        job = ScoreJob(
            checkpoint=checkpoint,
            tokens=self.tokens(split),
            selection=self._selection,
            split=split,
            part=part,
            sample=sample,
            estimator=estimator,
            with_intents=with_intents,
            precision=self._scoring.precision,
            max_tokens_per_batch=self._scoring.max_tokens_per_batch,
            pools_per_shard=self._scoring.pools_per_shard,
            seed=self._seed * 1000 + number,
        )
        inputs = {
            **self._common_inputs(),
            "model": digest,
            **job.model_dump(mode="json", exclude={"checkpoint", "tokens", "selection"}),
        }
        stage = self._cache.run(
            name,
            inputs,
            lambda folder: score(job, folder, self._resources, partial(self._reporter.advance, name)),
            kind=f"scores-{split}",
        )
        return Shards(stage)

    def stage(self, name: str, inputs: dict[str, Any], build: Callable[[Path], None]) -> Stage:
        """Any other stage."""
        number = int(name.split("/")[0].removeprefix("round-")) if name.startswith("round-") else 0
        stage = self._cache.run(name, inputs, build, kind=name.rpartition("/")[2])
        self._after_stage(name, number, stage)
        return stage

    def figure(self, model: Stage) -> float:
        """The model's best validation figure while it was trained."""
        return float(read_json(model.path / "result.json")["figure"])


class _TrainingWatcher(Watcher):
    """Passes on what a training tells."""

    def __init__(self, name: str, reporter: Reporter, on_epochs: Callable[[Sequence[dict[str, Any]]], None]) -> None:
        self._name, self._reporter, self._on_epochs = name, reporter, on_epochs

    def progress(self, done: float, total: float, note: str) -> None:
        """To the reporter."""
        self._reporter.advance(self._name, done, total, note)

    def spectral_norms(self, norms: dict[str, float]) -> None:
        """To the reporter: who bounds a backbone too tightly wants to know before the training is over."""
        self._reporter.message(
            f"{self._name}: {len(norms)} layers had spectral norms from {min(norms.values()):.2f} to "
            f"{max(norms.values()):.2f} before their bound; {SPECTRAL_NORMS} beside the checkpoint has them all"
        )

    def validated(self, points: Sequence[dict[str, Any]]) -> None:
        """To whoever may end the training."""
        self._on_epochs(points)


def _portable(ranker: RankerConfig, digest: str) -> dict[str, Any]:
    """A ranker's settings with the backbone's digest instead of its place."""
    fields = ranker.model_dump(mode="json")
    fields["encoder"]["backbone"] = digest
    return fields
