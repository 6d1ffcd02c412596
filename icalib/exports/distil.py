"""A student of a finished run: one cross-encoder that gives the run's probabilities, and what that costs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from typing_extensions import override

from icalib.core.events import Emit
from icalib.core.files import atomic_write, file_digest
from icalib.core.job import Artifact, LocalJob
from icalib.core.stage_cache import StageName
from icalib.data.pools import read_column, read_pool_set
from icalib.data.schema import Split
from icalib.encoders.backbone import Tokenizer, load_tokenizer
from icalib.encoders.transformer import AbstractEncoder, BackboneEncoder, TransformerEncoder
from icalib.exports.choices import CalibrationChoice
from icalib.exports.subject import MEASURED, Subject, fitted, known_scores, scores_of
from icalib.exports.texts import utterance_separator
from icalib.models.checkpoint import RankerConfig
from icalib.models.ranker import Ranker, load_ranker
from icalib.pipeline.evaluation import Fitted, prediction_table
from icalib.pipeline.finished import FinishedRun, checkpoint_digest, score_stages
from icalib.pipeline.run import RunContext, stages_of
from icalib.scoring.gain import GainRule
from icalib.scoring.scores import Shards
from icalib.stages.composition import Composition
from icalib.stages.parts import score
from icalib.stages.stages import Scoring, Stages, Trained, checkpoint
from icalib.training.distillation import TARGET_SCHEMA, DistilJob
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import Deterministic

_TARGETS = "targets.parquet"
_TRAINING = TrainingSettings(epochs=3, patience=3, selection_metric="MAP", learning_rate=5e-5, head_learning_rate=1e-3)


class TargetJob(LocalJob):
    """Writes a run's calibrated probabilities of pools that its members have scored."""

    scores: tuple[Artifact, ...]  # stage with each member's scores
    fitted: Artifact  # what the run has fitted, `Fitted` as JSON

    @override
    def compute(self, folder: Path, stage: str, emit: Emit) -> None:
        own = Fitted.load(self.fitted.path)
        with atomic_write(folder / _TARGETS) as temporary, pq.ParquetWriter(temporary, TARGET_SCHEMA) as writer:
            for shard in Shards(*(member.path for member in self.scores)):
                predictions = prediction_table([shard], own)
                writer.write_table(predictions.select(TARGET_SCHEMA.names).cast(TARGET_SCHEMA))


def distilled(
    run: FinishedRun, max_pools: int | None, choice: CalibrationChoice, context: RunContext
) -> Subject[Ranker]:
    """Train a student on the run's probabilities of its training pools, labelled and unlabelled, and measure it.

    `max_pools` of them are used, labelled ones first; `choice` is fitted to the student's validation scores, by default
    Platt scaling. The same call resumes. A SettingError says that the run's pools have changed.
    """
    stages = _stages(run, context)
    job = DistilJob(
        ranker=RankerConfig(encoder=stages.encoder),
        training=_TRAINING,
        selection=stages.selection,
        train_tokens=stages.tokens("train"),
        validation_tokens=stages.tokens("validation"),
        targets=_targets(run, stages, max_pools, context),
        start=_start(run),
        seed=run.config.seed,
    )
    name = StageName("distilled")
    stage = stages.run(name, job)
    student = Trained(name, {"cross": checkpoint(stage)})
    predictions: dict[Split, pa.Table] = {split: _predictions(stages, student, split) for split in MEASURED}
    calibrator = "platt" if choice == "run" else choice
    calibration, scores = fitted(known_scores(predictions), calibrator)
    return Subject(
        run=run,
        model=load_ranker(stage.path / "checkpoint").eval(),
        calibration=calibration,
        calibrator=calibrator,
        scores=scores,
        teacher=scores_of(run),
    )


def _stages(run: FinishedRun, context: RunContext) -> Stages:
    config = run.config
    pool_set = read_pool_set(config.data)
    run.folder.check_trained_on(config.data, pool_set.digest)
    student = Composition(encoder=_student_encoder(config.settings.encoder), scoring=config.settings.scoring)
    return replace(stages_of(config, pool_set, context), composition=student)


def _student_encoder(encoder: AbstractEncoder.Config) -> TransformerEncoder.Config:
    """Return the plain cross-encoder with the backbone, depth and token limits of another encoder.

    It separates utterances where stock rerankers, which get them as one text, need that to read the same tokens.
    """
    shared = {name: getattr(encoder, name) for name in ("backbone", "budget", "turn_separators")}
    if isinstance(encoder, BackboneEncoder.Config):
        shared |= {"num_layers": encoder.num_layers, "dropout": encoder.dropout}
    tokenize, tokenizer = Tokenizer(encoder.backbone), load_tokenizer(encoder.backbone)
    if utterance_separator(tokenize, tokenizer, separated=False) is None:
        shared["turn_separators"] = True
    return TransformerEncoder.Config(**shared)


def _start(run: FinishedRun) -> Artifact | None:
    """Return the checkpoint whose encoder the student starts from; None if there is none with a backbone."""
    if not run.members or not run.config.settings.encoder.has_backbone:
        return None
    folder = run.members[0][0] / "cross"
    return Artifact(path=folder.resolve(), digest=checkpoint_digest(folder)) if folder.is_dir() else None


def _targets(run: FinishedRun, stages: Stages, max_pools: int | None, context: RunContext) -> Artifact:
    config = run.config
    limits = [limit for limit in (max_pools, config.limit.get("train")) if limit is not None]
    first: tuple[int, ...] = ()
    if limits and config.resample_labels:  # otherwise the pools' own order has them first
        order = read_column(config.data, "train", "label_order")
        first = tuple(config.selection.rows("train", "labelled", order).tolist())
    scores = score_stages(run, config.data, "train", min(limits, default=None), context, first=first)
    path = run.folder.fitted_path
    job = TargetJob(
        scores=tuple(stage.artifact() for stage in scores),
        fitted=Artifact(path=path.resolve(), digest=file_digest(path)),
    )
    return stages.run(StageName("distil-targets"), job).artifact(_TARGETS)


def _predictions(stages: Stages, model: Trained, split: Split) -> pa.Table:
    scoring = Scoring(split, "all", Deterministic.Config())
    scores = Shards(score(stages, StageName("distilled-scores", split), model, scoring).path)
    return prediction_table(scores, Fitted(rule=GainRule(), calibration=None, decision_threshold=0.5))
