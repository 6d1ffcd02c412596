"""Stages of a ranker's parts: trained in their order, each seeing the earlier ones out of fold, then added."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from icalib.core.events import Message
from icalib.core.files import read_json
from icalib.core.job import Artifact
from icalib.core.stage_cache import Stage, StageName
from icalib.data.folds import Fold
from icalib.data.schema import Split
from icalib.parts.fit import FitJob, OffsetJob
from icalib.parts.intent import INTENTS_FILE, OUT_OF_FOLD, Intent, IntentJob
from icalib.parts.intent_encoder import IntentEncoderJob
from icalib.parts.job import ORDER, ColumnJob, PartName
from icalib.parts.similarity import Similarity, SimilarityJob
from icalib.parts.sum import PARTS_FILE, SumJob, SumOfParts
from icalib.scoring.gain import AUTHORS_CHOICE, NEVER_INTENTS, GainRule
from icalib.stages.executor import Executor
from icalib.stages.stages import Scoring, Stages, Student, Trained, checkpoint
from icalib.training.contrast import AbstractContrast
from icalib.training.cross_encoder import CrossEncoderJob
from icalib.training.job import best_epoch
from icalib.training.pseudo_labelled import pseudo_label_digest
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import Deterministic, MCDropout

_INTENT_FOLDS = 2  # of the labelled pools, whose intents are predicted by encoders that were trained without them


def score(stages: Stages, name: StageName, model: Trained, scoring: Scoring) -> Stage:
    """Score pools by the parts that have a weight; the intent part is run for its intents, too.

    `Shards(stage.path)` reads the scores.
    """
    used = model.sum.used
    if scoring.intents is not None and "cross" in used:
        used = [*used, "intent"]
    models = {part: model.parts[part] for part in ORDER if part in used and part in model.parts}
    job = SumJob(
        columns={part: stage.artifact() for part, stage in column_stages(stages, name, models, scoring).items()},
        fit=model.fit,
        estimator=scoring.estimator,
        softmax=stages.composition.loss.link == "softmax",
    )
    return stages.run(name, job)


def scores_name(split: Split, index: int = 0) -> StageName:
    """Return the name of the stage with a member's scores."""
    return StageName("scores", split, index=index)


def column_stages(
    stages: Stages, name: StageName, models: Mapping[PartName, Artifact], scoring: Scoring, fold: Fold | None = None
) -> dict[PartName, Stage]:
    """Return the columns of some pools, by part."""
    found: dict[PartName, Stage] = {}
    learns_soft_labels = scoring.of == "unlabelled" and stages.composition.similarity is not None
    for part, model in models.items():
        has_passes = isinstance(scoring.estimator, MCDropout.Config) and part != "intent"
        found[part] = stages.run(
            replace(name, label=f"{name.label}-{part}"),
            ColumnJob(
                part=part,
                model=model,
                tokens=stages.tokens(scoring.split),
                selection=stages.selection,
                split=scoring.split,
                of=scoring.of,
                soft_labels=stages.soft_labels if learns_soft_labels else None,
                sample=scoring.sample,
                fold=fold,
                # an estimator and intents that a part doesn't read aren't in its job, so that methods share its column
                estimator=scoring.estimator if has_passes or part != "similarity" else Deterministic.Config(),
                with_intents=scoring.intents is not None and part == "cross",
                intents=found["intent"].artifact() if part == "cross" and "intent" in found else None,
                intent_choice=scoring.intents if scoring.intents and part != "similarity" else AUTHORS_CHOICE,
                precision=stages.composition.scoring.precision,
                max_tokens_per_batch=stages.composition.scoring.max_tokens_per_batch,
                pools_per_shard=stages.composition.scoring.pools_per_shard,
                seed=stages.seed_of(name) if has_passes or scoring.sample else 0,
            ),
        )
    return found


@dataclass(frozen=True)
class Generated:
    """Texts that were generated for the labelled pools, and their loss term."""

    tokens: Artifact
    contrast: AbstractContrast.Config


@dataclass
class PartTraining:
    """Trains a ranker's parts, one after another, on the labelled pools and what else there is, and fits their sum.

    Args:
        stages: of the run.
        name: of the training.
        cross_settings: of the cross-encoder's training; the composition has those of the other parts.
        rule: chooses the view that predicts, and with it intents are trained, too; None: there is the plain view alone.
        student: what a student learns from; None: a teacher.
        generated: texts that the cross-encoder learns from, too.
        member_seed: instead of the round's seed.
        member_executor: instead of the run's.
    """

    stages: Stages
    name: StageName
    cross_settings: TrainingSettings
    rule: GainRule | None = None
    student: Student | None = None
    generated: Generated | None = None
    member_seed: int | None = None
    member_executor: Executor | None = None

    def __post_init__(self) -> None:
        self._parts: dict[PartName, Artifact] = {}
        self._out_of_fold = dict(self.student.teacher.out_of_fold) if self.student else {}
        self._seed = self.stages.seed_of(self.name) if self.member_seed is None else self.member_seed

    def train(self) -> Trained:
        """Train the parts, and fit the weights."""
        composition, student = self.stages.composition, self.student
        trainings: list[Stage] = []
        intent = composition.intent if self.rule is not None else None
        if composition.similarity is not None:
            trainings.append(self._similarity(composition.similarity))
            self._parts["similarity"] = checkpoint(trainings[-1])
            if student is None and (intent is not None or composition.cross):
                self._out_of_fold["similarity"] = self._similarity_out_of_fold(composition.similarity)
        if intent is not None:
            stage = self._intent(intent)
            self._parts["intent"] = checkpoint(stage)
            if student is None:
                self._out_of_fold["intent"] = (stage.artifact(OUT_OF_FOLD),)
        if composition.cross:
            trainings.append(self._cross())
            self._parts["cross"] = checkpoint(trainings[-1])
        # a cross-encoder alone needs no weights
        fit = None if tuple(self._parts) == ("cross",) else self._fit(self._validation(self._parts))
        first = self._first if student else None
        trained = Trained(self.name, self._parts, fit, tuple(trainings), first, self._out_of_fold)
        if fit is not None:
            self.stages.emit(Message(f"{self.name}: {described(trained.sum)}"))
        return trained

    def out_of_fold(self, model: Trained, num_folds: int) -> dict[PartName, tuple[Artifact, ...]]:
        """Return the columns of the labelled pools of each part of a teacher that `train` returned, out of fold.

        Those that later parts see are there already; the last part is trained again `num_folds` times, without a fold.
        """
        found = dict(model.out_of_fold)
        for part in model.sum.used:
            similarity = self.stages.composition.similarity
            if part == "similarity" and part not in found and similarity is not None:
                settings = similarity.model_copy(update={"num_folds": num_folds})
                found[part] = self._similarity_out_of_fold(settings)
            elif part == "cross":
                folds = [Fold(index=index, number=num_folds) for index in range(num_folds)]
                found[part] = tuple(self._labelled_cross_column(fold) for fold in folds)
        return {part: found[part] for part in model.sum.used}

    def _labelled_cross_column(self, fold: Fold) -> Artifact:
        """Return the column of a fold of the labelled pools by a cross-encoder that was trained without it."""
        models: dict[PartName, Artifact] = {}
        if (intent := self.stages.composition.intent) is not None and "intent" in self._parts:
            models["intent"] = checkpoint(self._intent(intent, fold))  # whose intents the cross-encoder reads
        models["cross"] = checkpoint(self._cross(fold))
        intents = self.rule.intents if self.rule else None
        scoring = Scoring("train", "labelled", self.stages.estimator, intents)
        name = self._named(f"fold-{fold.index + 1}-train-labelled")
        return column_stages(self.stages, name, models, scoring, fold)["cross"].artifact()

    @property
    def _first(self) -> Trained:
        """The model of round 0."""
        assert self.student is not None
        teacher = self.student.teacher
        return teacher.first or teacher

    def _named(self, part: str, left_out: Fold | None = None) -> StageName:
        fold = "" if left_out is None else f"-fold-{left_out.index + 1}"
        return replace(self.name, label=f"{self.name.label}-{part}{fold}")

    @cached_property
    def _pseudo_labels(self) -> Artifact | None:
        if self.student is None:
            return None
        path = self.student.pseudo_labels.path
        return Artifact(path=path, digest=pseudo_label_digest(path))

    def _similarity(self, settings: Similarity, left_out: Fold | None = None) -> Stage:
        stages, student = self.stages, self.student
        start = student.teacher.parts["similarity"] if student else stages.start
        job = SimilarityJob(
            backbone=stages.encoder.backbone,
            budget=stages.encoder.budget,
            dropout=getattr(stages.encoder, "dropout", None),  # of encoders with a backbone, which this part requires
            settings=settings,
            left_out=left_out,
            selection=stages.selection,
            train_tokens=stages.tokens("train"),
            validation_tokens=stages.tokens("validation"),
            start=start,
            pseudo_labels=self._pseudo_labels,
            soft_labels=stages.soft_labels,
            seed=self._seed,
        )
        return stages.run(self._named("similarity", left_out), job, self.member_executor)

    def _similarity_out_of_fold(self, settings: Similarity) -> tuple[Artifact, ...]:
        """Return the columns of the labelled pools by bi-encoders that were trained without them."""
        if not settings.training.epochs:  # it has seen no label
            return (self._labelled_column(self._parts["similarity"], self.name),)
        found: list[Artifact] = []
        for index in range(settings.num_folds):
            fold = Fold(index=index, number=settings.num_folds)
            model = checkpoint(self._similarity(settings, fold))
            found.append(self._labelled_column(model, self._named(f"fold-{index + 1}"), fold))
        return tuple(found)

    def _labelled_column(self, model: Artifact, name: StageName, fold: Fold | None = None) -> Artifact:
        scoring = Scoring("train", "labelled", self.stages.estimator)
        name = replace(name, label=f"{name.label}-train-labelled")
        return column_stages(self.stages, name, {"similarity": model}, scoring, fold)["similarity"].artifact()

    def _validation(self, parts: Mapping[PartName, Artifact]) -> dict[PartName, Artifact]:
        """Return the validation columns of parts, in the view that has intents."""
        intents = self.rule.intents if self.rule else None
        scoring = Scoring("validation", "all", self.stages.estimator, intents)
        # named as the final evaluation's, which finds these columns if they are of this model
        name = replace(scores_name("validation"), group=f"{self.name}/validation")
        columns = column_stages(self.stages, name, parts, scoring)
        return {part: stage.artifact() for part, stage in columns.items()}

    def _offsets(self, of: PartName) -> Artifact | None:
        """Return the logits of the earlier parts on pools that they have not been trained on; None without such parts.

        A student's are those of round 0, which has seen no pseudo labels.
        """
        student = self.student
        earlier = {part: self._parts[part] for part in ORDER[: ORDER.index(of)] if part in self._parts}
        if not earlier:
            return None
        labelled = {part: self._out_of_fold[part] for part in earlier}
        unlabelled: dict[PartName, Artifact] = {}
        if student is not None:
            earlier = {part: self._first.parts[part] for part in earlier}
        if student is not None and not student.is_control:
            # not as the round's scores, which have the columns of this name that its pseudo labels are explained by
            name = replace(student.scores_name, group=f"{student.scores_name.group}/offsets")
            columns = column_stages(self.stages, name, earlier, student.scoring)
            unlabelled = {part: stage.artifact() for part, stage in columns.items()}
        validation = self._validation(earlier)
        job = OffsetJob(
            fit=self._fit(validation),
            labelled=labelled,
            validation=validation,
            unlabelled=unlabelled,
            pseudo_labels=self._pseudo_labels if unlabelled else None,
        )
        return self.stages.run(self._named(f"{of}-offsets"), job).artifact()

    def _fit(self, validation: Mapping[PartName, Artifact]) -> Artifact:
        reads_intents = self.rule is not None and self.rule.gain_threshold != NEVER_INTENTS
        view = "intent" if reads_intents else "plain"
        job = FitJob(columns=dict(validation), estimator=self.stages.estimator, view=view)
        label = "-".join(("fit", *validation))
        return self.stages.run(self._named(label), job).artifact(PARTS_FILE)

    def _intent_encoders(self, settings: Intent, left_out: Fold | None = None) -> tuple[Artifact, ...]:
        """Return the encoder that predicts intents, then one without each fold; none if regressions are as good.

        They are those of round 0 in all rounds and members: intents of unlabelled utterances are predicted only.
        """
        if settings.training is None:
            return ()
        whole = self._intent_encoder(settings)
        if not best_epoch(whole.path):
            return ()
        kept = whole if left_out is None else self._intent_encoder(settings, left_out)
        folds = [Fold(index=index, number=_INTENT_FOLDS) for index in range(_INTENT_FOLDS)]
        return tuple(map(checkpoint, (kept, *(self._intent_encoder(settings, fold) for fold in folds))))

    def _intent_encoder(self, settings: Intent, left_out: Fold | None = None) -> Stage:
        stages, suffix = self.stages, ""
        assert settings.training is not None
        if left_out is not None:
            suffix = f"-fold-{left_out.index + 1}" + f"-of-{left_out.number}" * (left_out.number != _INTENT_FOLDS)
        name = StageName(f"intent-encoder{suffix}")
        job = IntentEncoderJob(
            backbone=stages.encoder.backbone,
            budget=stages.encoder.budget,
            dropout=getattr(stages.encoder, "dropout", None),
            training=settings.training,
            ridge=settings.ridge,
            num_folds=settings.num_folds,
            selection=stages.selection,
            num_intents=len(stages.pool_set.intents),
            train_tokens=stages.tokens("train"),
            validation_tokens=stages.tokens("validation"),
            start=stages.start,
            left_out=left_out,
            seed=stages.seed_of(name),
        )
        return stages.run(name, job, self.member_executor)

    def _intent(self, settings: Intent, left_out: Fold | None = None) -> Stage:
        stages, student = self.stages, self.student
        job = IntentJob(
            settings=settings,
            backbone=stages.encoder.backbone,
            budget=stages.encoder.budget,
            start=stages.start,
            left_out=left_out,
            selection=stages.selection,
            num_intents=len(stages.pool_set.intents),
            train_tokens=stages.tokens("train"),
            validation_tokens=stages.tokens("validation"),
            offsets=self._offsets("intent"),
            # repeated pools would be in the folds that choose the ridge, and in their complement
            pseudo_labels=None if student is not None and student.is_control else self._pseudo_labels,
            encoders=self._intent_encoders(settings, left_out),
            precision=stages.composition.scoring.precision,
        )
        stage = stages.run(self._named("intent", left_out), job)
        path = stage.path / INTENTS_FILE
        # not with --dry, nor without labelled intents on validation
        if left_out is None and path.is_file() and (found := read_json(path)):
            stages.emit(
                Message(
                    f"{stage.name}: predicts intents with a micro-F1 of {found['micro_F1']:.2f}, macro-F1 "
                    f"{found['macro_F1']:.2f}, on validation (threshold {found['threshold']:g})"
                )
            )
        return stage

    def _cross(self, left_out: Fold | None = None) -> Stage:
        stages, student = self.stages, self.student
        offsets = self._offsets("cross")
        generated = self.generated if left_out is None else None  # it was generated from the labels of all pools
        ranker = stages.initial[0].model_copy(update={"starts_at_zero": offsets is not None})
        if self.rule is not None:
            ranker = ranker.model_copy(update={"intents": stages.pool_set.intents})
        job = CrossEncoderJob(
            ranker=ranker,
            loss=stages.composition.loss,
            training=self.cross_settings,
            selection=stages.selection,
            estimator=stages.estimator,
            rule=self.rule,
            views_with_intents=self.rule is not None,
            learns_intents="intent" not in self._parts,
            train_tokens=stages.tokens("train"),
            validation_tokens=stages.tokens("validation"),
            start=student.teacher.parts["cross"] if student else stages.start,
            offsets=offsets,
            pseudo_labels=self._pseudo_labels,
            contrast=generated.contrast if generated else None,
            generated=generated.tokens if generated else None,
            left_out=left_out,
            seed=self._seed,
        )
        is_first = offsets is None and left_out is None
        name = self.name if is_first else self._named("cross", left_out)
        return stages.run(name, job, self.member_executor)


def described(fitted: SumOfParts) -> str:
    """Return what a sum consists of, in a line."""
    used = " + ".join(f"{part.weight:.3g} {part.name}" for part in fitted.parts if part.weight)
    unused = [part.name for part in fitted.parts if not part.weight]
    without = f"; without {' and '.join(unused)}, which did not help on validation" if unused else ""
    return f"logit = {used} {fitted.offset:+.3g}{without}"
