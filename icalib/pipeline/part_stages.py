"""Stages of a ranker's parts: trained in their order, each seeing the earlier ones out of fold, then added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from icalib.core.events import Message
from icalib.core.files import read_json
from icalib.core.job import Artifact
from icalib.core.stage_cache import StageName
from icalib.parts.folds import Fold
from icalib.parts.intent import INTENTS_FILE, OUT_OF_FOLD, Intent, IntentJob
from icalib.parts.job import ORDER, ColumnJob, PartName
from icalib.parts.similarity import Similarity, SimilarityJob
from icalib.parts.sum import PARTS_FILE, FitJob, OffsetJob, SumOfParts
from icalib.regimes.regime import AnswerTraining, Scoring, Trained, checkpoint, scores_name
from icalib.scoring.gain import AUTHORS_CHOICE
from icalib.training.answers import TrainJob
from icalib.training.pseudo_labelled import pseudo_label_digest
from icalib.uncertainty.estimator import Deterministic, MCDropout

if TYPE_CHECKING:
    from icalib.core.stage_cache import Stage
    from icalib.pipeline.executor import Executor
    from icalib.pipeline.stages import RunStages


def column_stages(
    stages: RunStages,
    name: StageName,
    models: Mapping[PartName, Artifact],
    scoring: Scoring,
    fold: Fold | None = None,
) -> dict[PartName, Stage]:
    """Return the columns of some pools, by part."""
    found: dict[PartName, Stage] = {}
    for part, model in models.items():
        has_passes = isinstance(scoring.estimator, MCDropout.Config) and part != "intent"
        found[part] = stages.map(
            replace(name, label=f"{name.label}-{part}"),
            ColumnJob(
                part=part,
                model=model,
                tokens=stages.tokens(scoring.split),
                selection=stages.selection,
                split=scoring.split,
                of=scoring.part,
                sample=scoring.sample,
                fold=fold,
                # what a part doesn't read isn't in its job, so that methods share its column
                estimator=scoring.estimator if has_passes or part != "similarity" else Deterministic.Config(),
                with_intents=scoring.intents is not None and part == "cross",
                intents=found["intent"].artifact() if part == "cross" and "intent" in found else None,
                intent_choice=scoring.intents
                if scoring.intents is not None and part != "similarity"
                else AUTHORS_CHOICE,
                precision=stages.method.scoring.precision,
                max_tokens_per_batch=stages.method.scoring.max_tokens_per_batch,
                pools_per_shard=stages.method.scoring.pools_per_shard,
                seed=stages.seed_of(name) if has_passes or scoring.sample else 0,
            ),
        )
    return found


@dataclass
class PartTraining:
    """The training of a ranker's parts, one after another, and of the weights of their sum."""

    stages: RunStages
    name: StageName
    training: AnswerTraining
    seed: int
    executor: Executor

    def train(self) -> Trained:
        """Train the parts, and fit the weights."""
        method = self.stages.method
        parts: dict[PartName, Artifact] = {}
        trainings: list[Stage] = []
        if method.similarity is not None:
            stage = self._similarity(method.similarity)
            trainings.append(stage)
            parts["similarity"] = checkpoint(stage)
        student = self.training.student
        out_of_fold = dict(student.teacher.out_of_fold) if student else {}
        if student is None and "similarity" in parts and (self._has_intents or method.cross):
            assert method.similarity is not None
            out_of_fold["similarity"] = self._similarity_out_of_fold(method.similarity, parts["similarity"])
        if self._has_intents:
            assert method.intent is not None
            stage = self._intent(method.intent, parts, out_of_fold)
            parts["intent"] = checkpoint(stage)
            if student is None:
                out_of_fold["intent"] = (stage.artifact(OUT_OF_FOLD),)
        if method.cross:
            stage = self._cross(self._offsets("cross", parts, out_of_fold), has_intents="intent" in parts)
            trainings.append(stage)
            parts["cross"] = checkpoint(stage)
        trained = Trained(
            self.name, parts, self._fit(parts), tuple(trainings), self._first if student else None, out_of_fold
        )
        self._say(trained)
        return trained

    @property
    def _has_intents(self) -> bool:
        return self.training.rule is not None and self.stages.method.intent is not None

    @property
    def _first(self) -> Trained:
        """The model of round 0."""
        assert self.training.student is not None
        teacher = self.training.student.teacher
        return teacher.first or teacher

    def _named(self, part: str) -> StageName:
        return replace(self.name, label=f"{self.name.label}-{part}")

    def _pseudo_labels(self) -> Artifact | None:
        if self.training.student is None:
            return None
        path = self.training.student.pseudo_labels.path
        return Artifact(path=path, digest=pseudo_label_digest(path))

    def _similarity(self, settings: Similarity, left_out: Fold | None = None) -> Stage:
        stages, student = self.stages, self.training.student
        start = student.teacher.parts["similarity"] if student else self._start()
        job = SimilarityJob(
            backbone=stages.encoder.backbone,
            budget=stages.encoder.budget,
            settings=settings,
            left_out=left_out,
            selection=stages.selection,
            train_tokens=stages.tokens("train"),
            validation_tokens=stages.tokens("validation"),
            start=start,
            pseudo_labels=self._pseudo_labels(),
            seed=self.seed,
        )
        suffix = "" if left_out is None else f"-fold-{left_out.index + 1}"
        return stages.train_job(self._named(f"similarity{suffix}"), job, self.executor)

    def _start(self) -> Artifact | None:
        return checkpoint(self.stages.start) if self.stages.start else None

    def _similarity_out_of_fold(self, settings: Similarity, whole: Artifact) -> tuple[Artifact, ...]:
        """Return the columns of the labelled pools by bi-encoders that were trained without them."""
        found: list[Artifact] = []
        labelled = replace(self._plain, split="train", part="labelled")
        if not settings.training.epochs:  # it has seen no label
            return (self._column("similarity", whole, labelled).artifact(),)
        for index in range(settings.num_folds):
            fold = Fold(index=index, number=settings.num_folds)
            model = checkpoint(self._similarity(settings, fold))
            found.append(self._column("similarity", model, labelled, fold).artifact())
        return tuple(found)

    @property
    def _plain(self) -> Scoring:
        return Scoring("validation", "all", self.stages.estimator)

    def _column(self, part: PartName, model: Artifact, scoring: Scoring, fold: Fold | None = None) -> Stage:
        name = self.name if fold is None else self._named(f"fold-{fold.index + 1}")
        name = replace(name, label=f"{name.label}-{scoring.split}-{scoring.part}")
        return column_stages(self.stages, name, {part: model}, scoring, fold)[part]

    def _validation(self, parts: Mapping[PartName, Artifact]) -> dict[PartName, Artifact]:
        """Return the validation columns of parts, in the view that has intents."""
        scoring = replace(self._plain, intents=self.training.rule.intents if self.training.rule else None)
        # named as the final evaluation's, which finds these columns if they are of this model
        name = replace(scores_name("validation", self.name.index), group=f"{self.name}/validation")
        columns = column_stages(self.stages, name, parts, scoring)
        return {part: stage.artifact() for part, stage in columns.items()}

    def _offsets(
        self,
        of: PartName,
        parts: Mapping[PartName, Artifact],
        out_of_fold: Mapping[PartName, Sequence[Artifact]],
    ) -> Artifact | None:
        """Return the logits of the earlier parts on pools that they have not been trained on; None without such parts.

        A student's are those of round 0, which has seen no pseudo labels.
        """
        student = self.training.student
        earlier: dict[PartName, Artifact] = {
            part: model for part, model in parts.items() if part in ORDER[: ORDER.index(of)]
        }
        if not earlier:
            return None
        train: dict[PartName, tuple[Artifact, ...]] = {part: tuple(out_of_fold[part]) for part in earlier}
        if student is not None:
            earlier = {part: self._first.parts[part] for part in earlier}
            unlabelled = column_stages(self.stages, student.name, earlier, student.scoring)
            train = {part: (*columns, unlabelled[part].artifact()) for part, columns in train.items()}
        validation = self._validation(earlier)
        job = OffsetJob(
            fit=self._fit_of(validation),
            train=train,
            validation={part: (column,) for part, column in validation.items()},
        )
        return self.stages.compute(self._named(f"{of}-offsets"), job).artifact()

    def _fit_of(self, validation: Mapping[PartName, Artifact]) -> Artifact:
        view = "intent" if self.training.rule is not None else "plain"
        job = FitJob(columns=dict(validation), estimator=self.stages.estimator, view=view)
        label = "-".join(("fit", *validation))
        return self.stages.compute(self._named(label), job).artifact(PARTS_FILE)

    def _fit(self, parts: Mapping[PartName, Artifact]) -> Artifact | None:
        """Return the fitted weights; None for a cross-encoder alone, which needs none."""
        return None if tuple(parts) == ("cross",) else self._fit_of(self._validation(parts))

    def _intent(
        self,
        settings: Intent,
        parts: Mapping[PartName, Artifact],
        out_of_fold: Mapping[PartName, Sequence[Artifact]],
    ) -> Stage:
        stages = self.stages
        job = IntentJob(
            settings=settings,
            backbone=stages.encoder.backbone,
            budget=stages.encoder.budget,
            start=self._start(),
            selection=stages.selection,
            num_intents=len(stages.pool_set.intents),
            train_tokens=stages.tokens("train"),
            validation_tokens=stages.tokens("validation"),
            offsets=self._offsets("intent", parts, out_of_fold),
            pseudo_labels=self._pseudo_labels(),
            precision=stages.method.scoring.precision,
        )
        stage = stages.map(self._named("intent"), job)
        path = stage.path / INTENTS_FILE
        if path.is_file() and (found := read_json(path)):  # not with --dry, nor without labelled intents on validation
            stages.emit(
                Message(
                    f"{stage.name}: predicts intents with a micro-F1 of {found['micro_F1']:.2f}, macro-F1 "
                    f"{found['macro_F1']:.2f}, on validation (threshold {found['threshold']:g})"
                )
            )
        return stage

    def _cross(self, offsets: Artifact | None, *, has_intents: bool) -> Stage:
        stages, training, student = self.stages, self.training, self.training.student
        augmentation = training.augmentation
        job = TrainJob(
            ranker=stages.initial[0].model_copy(update={"starts_at_zero": offsets is not None}),
            loss=stages.method.loss,
            training=training.settings,
            selection=stages.selection,
            estimator=stages.estimator,
            rule=training.rule,
            views_with_intents=training.rule is not None,
            learns_intents=not has_intents,
            train_tokens=stages.tokens("train"),
            validation_tokens=stages.tokens("validation"),
            start=student.teacher.parts["cross"] if student else self._start(),
            offsets=offsets,
            pseudo_labels=self._pseudo_labels(),
            contrast=augmentation.contrast if augmentation else None,
            generated=stages.generated_tokens(augmentation) if augmentation else None,
            seed=self.seed,
        )
        return stages.train_job(self._named("cross") if offsets is not None else self.name, job, self.executor)

    def _say(self, trained: Trained) -> None:
        if trained.fit is not None:
            self.stages.emit(Message(f"{self.name}: {described(trained.fitted)}"))


def described(fitted: SumOfParts) -> str:
    """Return what a sum consists of, in a line."""
    used = " + ".join(f"{part.weight:.3g} {part.name}" for part in fitted.parts if part.weight)
    unused = [part.name for part in fitted.parts if not part.weight]
    without = f"; without {' and '.join(unused)}, which did not help on validation" if unused else ""
    return f"logit = {used} {fitted.offset:+.3g}{without}"
