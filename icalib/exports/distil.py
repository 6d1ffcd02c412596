"""A student of a finished run: one cross-encoder that gives the run's probabilities, and what that costs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field
from typing_extensions import override

from icalib.core.component import Settings
from icalib.core.errors import SettingError
from icalib.core.events import Emit
from icalib.core.files import file_digest, whole_file
from icalib.core.job import Artifact, LocalJob
from icalib.core.stage_cache import StageCache, StageName
from icalib.data.pools import read_pool_set
from icalib.data.schema import SPLITS, Split
from icalib.encoders.transformer import AbstractEncoder, BackboneEncoder, TransformerEncoder
from icalib.exports.choices import CalibrationChoice
from icalib.exports.subject import Subject, known_scores, scores_of
from icalib.models.config import RankerConfig
from icalib.models.ranker import load_ranker
from icalib.pipeline.evaluation import Fitted, MemberScores, prediction_table
from icalib.pipeline.inference import FinishedRun, checkpoint_digest, score_stages
from icalib.pipeline.run import CACHE, RunContext
from icalib.pipeline.stages import RunInputs, RunStages
from icalib.regimes.regime import Scoring, checkpoint
from icalib.scoring.gain import GainRule
from icalib.training.distillation import TARGET_SCHEMA, DistilJob
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import Deterministic

_TARGETS = "targets.parquet"
_MEASURED: tuple[Split, ...] = ("validation", "test")


class TargetJob(LocalJob):
    """Writes a run's calibrated probabilities of pools that its members have scored."""

    scores: tuple[Artifact, ...]
    """Stage with each member's scores."""
    fitted: Artifact
    """What the run has fitted, `Fitted` as JSON."""

    @override
    def compute(self, folder: Path, stage: str, emit: Emit) -> None:
        fitted = Fitted.load(self.fitted.path)
        with whole_file(folder / _TARGETS) as temporary, pq.ParquetWriter(temporary, TARGET_SCHEMA) as writer:
            for shard in MemberScores(self.scores):
                predictions = prediction_table([shard], fitted)
                writer.write_table(predictions.select(TARGET_SCHEMA.names).cast(TARGET_SCHEMA))


class Distillation(Settings):
    """Settings of a student."""

    epochs: int = Field(default=3, ge=1)
    """Passes over all training pools; the epoch of the best MAP on validation is kept."""
    learning_rate: float = Field(default=5e-5, gt=0)
    """Peak learning rate of the encoder."""
    head_learning_rate: float = Field(default=1e-3, gt=0)
    """Peak learning rate of the new head."""
    max_pools: int | None = Field(default=None, ge=1)
    """Number of training pools, labelled ones first; None takes all of the run's."""

    def training(self) -> TrainingSettings:
        """Return the settings of the training loop."""
        return TrainingSettings(
            epochs=self.epochs,
            patience=self.epochs,
            selection_metric="MAP",
            learning_rate=self.learning_rate,
            head_learning_rate=self.head_learning_rate,
        )


def distilled(
    run: FinishedRun, distillation: Distillation, calibration: CalibrationChoice, context: RunContext
) -> Subject:
    """Train a student on the run's probabilities of its training pools, labelled and unlabelled, and measure it.

    The same call resumes, or reuses the student.

    Args:
        run: any finished run with a model.
        distillation: how to train.
        calibration: what is fitted to the student's validation scores; `run` is Platt scaling.
        context: where to compute; stages are cached in its `runs` folder.

    Raises:
        SettingError: the run's pools have changed.
    """
    settings = run.settings
    stages, cache = _stages(run, context)
    tokens = stages.tokens_stage
    job = DistilJob(
        ranker=RankerConfig(encoder=stages.encoder, similarity_start="none"),
        training=distillation.training(),
        selection=stages.selection,
        train_tokens=tokens.artifact("train.arrow"),
        validation_tokens=tokens.artifact("validation.arrow"),
        targets=_targets(run, stages, distillation.max_pools, context),
        start=_start(run),
        seed=settings.seed,
    )
    name = StageName("distilled")
    stage = cache.run(name, job, lambda folder: context.executor.train(job, folder, str(name), context.emit))
    raw = Fitted(rule=GainRule(), calibration=None, decision_threshold=0.5)
    predictions: dict[Split, pa.Table] = {
        split: prediction_table(_scores(stages, checkpoint(stage), split), raw) for split in _MEASURED
    }
    subject = Subject(
        run=run,
        ranker=load_ranker(stage.path / "checkpoint").eval(),
        estimator=Deterministic.Config(),
        calibration=None,
        calibrator="none",
        scores=known_scores(predictions),
        teacher=scores_of(run),
    )
    return subject.calibrated("platt" if calibration == "run" else calibration)


def _stages(run: FinishedRun, context: RunContext) -> tuple[RunStages, StageCache]:
    settings = run.settings
    pool_set = read_pool_set(settings.data)
    if pool_set.digest != run.data_digest:
        raise SettingError(
            f"{settings.data} has changed since {run.folder.path} was trained (digest {pool_set.digest}, then "
            f"{run.data_digest}). Distilling needs the run's own pools: prepare them again as they were."
        )
    cache = StageCache(context.runs / CACHE, emit=context.emit)
    inputs = RunInputs(
        path=settings.data,
        pool_set=pool_set,
        selection=settings.selection,
        encoder=student_encoder(settings.settings.encoder),
        scoring=settings.settings.scoring,
        seed=settings.seed,
        splits=SPLITS,
    )
    return RunStages(inputs, cache, context.executor, context.emit), cache


def student_encoder(encoder: AbstractEncoder.Config) -> TransformerEncoder.Config:
    """Return the plain cross-encoder with the backbone, depth and token limits of another encoder."""
    shared = {name: getattr(encoder, name) for name in ("backbone", "budget", "turn_separators")}
    if isinstance(encoder, BackboneEncoder.Config):
        shared |= {"num_layers": encoder.num_layers, "dropout": encoder.dropout}
    return TransformerEncoder.Config(**shared)


def _start(run: FinishedRun) -> Artifact | None:
    """Return the checkpoint whose encoder the student starts from; None if there is none with a backbone."""
    if not run.members or not run.settings.settings.encoder.has_backbone:
        return None
    folder = run.members[0][0]
    return Artifact(path=folder.resolve(), digest=checkpoint_digest(folder))


def _targets(run: FinishedRun, stages: RunStages, max_pools: int | None, context: RunContext) -> Artifact:
    """Return the run's calibrated probabilities of its training pools."""
    settings = run.settings
    limits = [limit for limit in (max_pools, settings.limit.get("train")) if limit is not None]
    scores = score_stages(run, settings.data, "train", min(limits, default=None), context)
    fitted = run.folder.fitted_path
    job = TargetJob(
        scores=tuple(stage.artifact() for stage in scores),
        fitted=Artifact(path=fitted.resolve(), digest=file_digest(fitted)),
    )
    return stages.compute(StageName("distil-targets"), job).artifact(_TARGETS)


def _scores(stages: RunStages, model: Artifact, split: Split) -> MemberScores:
    scoring = Scoring(split, "all", Deterministic.Config(), with_intents=False)
    return MemberScores([stages.score(StageName("distilled-scores", split), model, scoring)])
