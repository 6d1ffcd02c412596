"""A run: one method on a pool set with a seed, from pools to metrics."""

from __future__ import annotations

import platform
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa

from icalib.calibration.none_of_these import MIN_POOLS
from icalib.calibration.post_hoc import post_hoc_metrics
from icalib.core.errors import SettingError
from icalib.core.events import Emit, Message, ignore
from icalib.core.files import content_digest, read_json, write_json
from icalib.core.job import from_outside
from icalib.core.locks import alone
from icalib.core.run_folder import RunFolder
from icalib.core.run_tables import METRIC_SCHEMA
from icalib.core.stage_cache import LOCKS, JobCache, Stage, StageCache
from icalib.core.storage import is_mirrored, location, names_in, pull, push, remove
from icalib.core.version import __version__
from icalib.data.pools import iter_pools, read_column, read_pool_set, read_rows
from icalib.data.schema import SPLITS, PoolSet, Split, right_indices
from icalib.metrics.pairs import IntArray
from icalib.metrics.summary import measured
from icalib.parts.intent import INTENTS_FILE
from icalib.parts.sum import PARTS_FILE
from icalib.pipeline.claim import claim, is_started, repair
from icalib.pipeline.config import RunConfig
from icalib.pipeline.evaluation import Fitted, fit, intent_table, prediction_table
from icalib.pipeline.record import RunRecord
from icalib.regimes.regime import AbstractRegime, Member
from icalib.scoring.column import pool_sizes
from icalib.scoring.scores import Shards
from icalib.stages.executor import Executor
from icalib.stages.stages import Stages
from icalib.training.domain_pretraining.contrastive import Contrastive
from icalib.training.job import best_epoch

PACKAGES = ("torch", "ray", "deepspeed", "transformers", "numpy", "pyarrow", "scikit-learn", "scipy")
CACHE = ".cache"
"""Folder of the stages, next to the experiments."""
_MAX_NAME = 150
"""Bytes of a run folder's name before the seed: file systems allow 255, and temporary names are longer."""
_MIN_METHOD = 40
EVALUATED: tuple[Split, ...] = ("validation", "test")


@dataclass(frozen=True)
class RunContext:
    """Where and how to run, and which results to keep; does not affect the numbers."""

    runs: Path  # of experiments and of the stage cache
    executor: Executor
    emit: Emit = ignore  # may raise `Abandoned` on `EpochFinished` to end the run
    command: str = ""  # for provenance.json
    evaluated: tuple[Split, ...] = EVALUATED  # the trials of a sweep leave out test
    keep_checkpoints: bool = True
    recomputed: set[str] | None = None  # of fresh runs: digests of the stages that they have computed again


def run_folder_of(config: RunConfig, runs: Path) -> RunFolder:
    """Return the run folder runs/<experiment>/<method>-<data>-<labelled>-s<seed>.

    A variant that names a path, or is too long for the name of a folder, is shortened and has a digest.
    """
    rest = f"-{config.data.name}-{config.labelled:g}"
    method = _folder_name(config.method, _MAX_NAME - len(rest.encode()))
    return RunFolder(runs / config.experiment / f"{method}{rest}-s{config.seed}")


def _folder_name(method: str, num_bytes: int) -> str:
    if "/" not in method and len(method.encode()) <= num_bytes:
        return method
    digest = content_digest(method)[:8]  # what is replaced or left out may be all that two variants differ in
    kept = method.replace("/", "-").encode()[: max(num_bytes - len(digest) - 1, _MIN_METHOD)]
    return f"{kept.decode(errors='ignore')}-{digest}"


def check_free(config: RunConfig, runs: Path) -> None:
    """Refuse a run whose folder has another one, before anything is computed; errors are those of `is_started`."""
    folder = run_folder_of(config, runs)
    for name in ("config.yaml", "provenance.json"):  # the run itself downloads the rest
        pull(folder.path / name)
    is_started(folder, config)


def run(config: RunConfig, context: RunContext, *, folder: RunFolder | None = None) -> RunFolder:
    """Run a method, or resume an interrupted run; a finished run is returned unchanged.

    With `recomputed` in the context everything is computed from scratch, a stage of several runs once; `folder`
    replaces the folder of `run_folder_of`. Errors are those of `check_fits` and `claim`.
    """
    pool_set = read_pool_set(config.data)
    check_fits(config, pool_set)
    folder = folder or run_folder_of(config, context.runs)
    waiting = Message(f"{location(folder.path)}: waiting: another process is computing this run")
    with alone(folder.path.parent / LOCKS / f"{folder.name}.run", lambda: context.emit(waiting)):
        return _run(config, context, folder, pool_set)


def _run(config: RunConfig, context: RunContext, folder: RunFolder, pool_set: PoolSet) -> RunFolder:
    if context.recomputed is not None:
        remove(folder.path)
    pull(folder.path, leave_out="checkpoints")
    if claim(folder, config) and not repair(folder, config, context.emit):
        if "result.json" not in names_in(folder.path):  # its upload failed before; a store's own run may be a later one
            push(folder.path)
        context.emit(Message(f"{location(folder.path)}: already finished; use --fresh to recompute it."))
        return folder
    started = datetime.now(UTC).isoformat(timespec="milliseconds")
    _write_provenance(folder, config, pool_set, context, started)
    begun = time.monotonic()
    record = RunRecord(folder, context.emit)
    context = replace(context, emit=record)
    cache = StageCache(context.runs / CACHE, emit=record, recomputed=context.recomputed)
    fitted, scores = _train_and_predict(folder, config, pool_set, context, cache)
    _write_metrics(folder, fitted, scores, config)
    record.show()
    _write_result(folder, config, cache, context.evaluated, time.monotonic() - begun)
    push(folder.path)
    return folder


def check_fits(config: RunConfig, pool_set: PoolSet) -> None:
    """Raise a SettingError if method and data don't fit, before anything is computed."""
    for split in EVALUATED:
        if not pool_set.num_pools[split]:
            raise SettingError(
                f"{config.data} has no {split} pools, but thresholds are fitted on validation and metrics are "
                "computed on test. Prepare data with all three splits."
            )
    method = config.settings
    if method.regime.trains:
        _check_labels(config)
    method.check()
    if method.regime.needs_intents():
        _check_intents(config, pool_set)
    if method.domain_pretraining is not None:
        _check_turns(config, pool_set)


def _check_labels(config: RunConfig) -> None:
    """Refuse a split without any pool with a known right candidate."""
    for split in SPLITS:
        rows = config.selection.rows(split, "labelled", read_column(config.data, split, "label_order"))
        if not (read_column(config.data, split, "label")[rows] >= 0).any():
            raise SettingError(
                f"no {split} pool of {config.data} has a known right candidate (`label` is below 0 in all that this "
                "run uses). Training needs labelled pools; thresholds and metrics need labelled validation and test "
                "pools. Prepare data with labels in all three splits."
            )


def _check_turns(config: RunConfig, pool_set: PoolSet) -> None:
    """Refuse contexts of one utterance each, from which domain pre-training has nothing to learn."""
    task = config.settings.domain_pretraining
    targets = task.targets if isinstance(task, Contrastive.Config) else "windows"
    if targets == "replies" or (targets == "logs" and pool_set.num_logs):
        return
    for batch in iter_pools(config.data, "train", ["context.list.element.speaker"]):
        if (batch["context"].value_lengths().to_numpy() > 1).any():
            return
    raise SettingError(
        f"`{config.method}` has a domain pre-training, which reads dialogues, and the contexts of {config.data} have "
        "one utterance each. Add --set domain_pretraining=null, or prepare the pools with the dialogues of --logs."
    )


def _check_intents(config: RunConfig, pool_set: PoolSet) -> None:
    """Refuse labelled pools without intents, or of one dialogue, whose intents can't be predicted without it."""
    cure = "Use `tsst` (self-training without intents) or `bert`, or label the intents of some dialogues."
    if not pool_set.intents:
        raise SettingError(f"`{config.method}` trains on intents, and no utterance of {config.data} has any. {cure}")
    rows = config.selection.rows("train", "labelled", read_column(config.data, "train", "label_order"))
    labelled = read_rows(config.data, "train", rows, ["dialog_id", "context.list.element.intents"])
    turns = labelled["context"].combine_chunks().flatten()
    if not len(turns.field("intents").flatten()):
        raise SettingError(
            f"`{config.method}` trains on intents, and no utterance of the {len(rows)} labelled training pools of "
            f"{config.data} that this run uses has any. {cure}"
        )
    if config.settings.intent is not None and len(labelled["dialog_id"].unique()) < 2:
        raise SettingError(
            f"the labelled training pools of {config.data} are of one dialogue; the intent part needs two. Label "
            "more pools, or use --set intent=null."
        )


def _train_and_predict(
    folder: RunFolder, config: RunConfig, pool_set: PoolSet, context: RunContext, cache: StageCache
) -> tuple[Fitted, dict[Split, Shards]]:
    method = config.settings
    regime: AbstractRegime = method.regime.build()
    stages = stages_of(config, pool_set, context, cache)
    learns = method.regime.trains and method.similarity is not None
    for source in pool_set.soft_labels:
        use = "are trained on by the similarity part" if learns else "are not used: this method has no similarity part"
        context.emit(Message(f"{source}; its soft labels of {source.num_pools} unlabelled pools {use}"))
    trained = regime.run(stages)
    models = [member.model for member in trained.members]
    epochs = [best_epoch(stage.path) for model in models for stage in model.trainings]
    folder.write_json(
        "chosen.json", {"round": trained.chosen_round, "num_rounds": trained.num_rounds, "epochs": epochs}
    )
    if method.regime.trains:
        folder.write_json(PARTS_FILE, [model.sum.model_dump(mode="json") for model in models])
        intents = [model.parts["intent"].path.parent / INTENTS_FILE for model in models if "intent" in model.parts]
        if intents:
            names = dict(enumerate(pool_set.intents))
            folder.write_json(INTENTS_FILE, {"intents": names, "members": [read_json(path) for path in intents]})
    scores: dict[Split, Shards] = {
        split: Shards(*(stage.path for stage in regime.score(stages, trained.members, split)))
        for split in context.evaluated
    }
    fitted = fit(scores["validation"], method, partial(_train_prior, config))
    if fitted.none_of_these is None and pool_set.num_unanswerable:
        context.emit(
            Message(
                f"p_none, the probability that no candidate is right, was not fitted: it needs {MIN_POOLS} validation "
                f"pools with a right candidate and {MIN_POOLS} without."
            )
        )
    for split, members in scores.items():
        folder.write_table(f"predictions/{split}.parquet", prediction_table(members, fitted))
        intents = intent_table(members, pool_set.intents)
        if intents is not None:
            folder.write_table(f"predictions/{split}_intents.parquet", intents)
    if context.keep_checkpoints and trained.members:
        _keep_checkpoints(trained.members, folder)
    fitted.save(folder.fitted_path)
    return fitted, scores


def stages_of(config: RunConfig, pool_set: PoolSet, context: RunContext, cache: JobCache | None = None) -> Stages:
    """Return the stages of a run; without a `cache`, they are in the one beside the experiments."""
    return Stages(
        composition=config.settings,
        folder=config.data,
        pool_set=pool_set,
        selection=config.selection,
        seed=config.seed,
        cache=cache or StageCache(context.runs / CACHE, emit=context.emit),
        executor=context.executor,
        emit=context.emit,
    )


def _write_metrics(folder: RunFolder, fitted: Fitted, scores: Mapping[Split, Shards], config: RunConfig) -> None:
    tables: list[pa.Table] = []
    for split in scores:
        table = fitted.summarise(folder.predictions(split), seed=config.seed, also=config.metrics)
        tables.append(table.add_column(0, METRIC_SCHEMA.field("split"), pa.array([split] * table.num_rows)))
    method = config.settings
    if "test" in scores:
        validation, test = (prediction_table(scores[split], fitted.uncalibrated) for split in EVALUATED)
        prior = _train_prior(config, pool_sizes(validation["pool_id"].to_numpy()))
        tables.append(post_hoc_metrics(validation, test, train_prior=prior, focal_gamma=method.focal_gamma))
    folder.write_table("metrics.parquet", pa.concat_tables(tables))


def _train_prior(config: RunConfig, sizes_P: IntArray) -> float | None:
    """Return `Method.train_prior` of the labelled pools alone: the labels of all others are hidden from the method."""
    method = config.settings
    if not method.regime.trains:
        return None
    rows = config.selection.rows("train", "labelled", read_column(config.data, "train", "label_order"))
    pools = read_rows(config.data, "train", rows, ["label", "also_right"]).to_pylist()
    num_right = np.array([len(right_indices(pool["label"], pool["also_right"])) for pool in pools])
    answerable = num_right > 0
    mean_right = float(num_right[answerable].mean()) if answerable.any() else 1.0
    return method.train_prior(sizes_P, 1.0 - float(answerable.mean()), mean_right)


def _keep_checkpoints(members: Sequence[Member], folder: RunFolder) -> None:
    """Copy each distinct model, so that it doesn't depend on the cache; members.json maps members to models.

    A model's folder has parts.json and a checkpoint for each part that predicts.
    """
    remove(folder.checkpoint_path)
    models = {id(member.model): member.model for member in members}
    path = folder.checkpoint_path
    targets = {key: path / f"member-{index}" if len(models) > 1 else path for index, key in enumerate(models)}
    for key, model in models.items():
        write_json(targets[key] / PARTS_FILE, model.sum.model_dump(mode="json"))
        for part, checkpoint in model.parts.items():
            if part in model.sum.used or (part == "intent" and "cross" in model.sum.used):
                shutil.copytree(checkpoint.path, targets[key] / part, copy_function=_link_or_copy)
    kept = [(targets[id(member.model)].relative_to(folder.path), member.estimator) for member in members]
    folder.write_json(
        "members.json",
        [{"checkpoint": path.as_posix(), "estimator": estimator.model_dump(mode="json")} for path, estimator in kept],
    )


def _link_or_copy(source: str, target: str) -> None:
    """Link a file if the file system can; not in a mirror, where a store's times would change the source, too."""
    if not is_mirrored(Path(target)):
        with suppress(OSError):
            Path(target).hardlink_to(source)
            return
    shutil.copyfile(source, target)


def _write_provenance(
    folder: RunFolder, config: RunConfig, pool_set: PoolSet, context: RunContext, started: str
) -> None:
    resources = context.executor.resources
    folder.write_json(
        "provenance.json",
        {
            "icalib": __version__,
            "python": platform.python_version(),
            "packages": {name: version(name) for name in PACKAGES},
            "command": context.command,
            "data_digest": pool_set.digest,
            "from_outside": from_outside(config),
            "soft_labels": [source.model_dump() for source in pool_set.soft_labels],
            "context_turns": pool_set.context_turns,
            "started": started,
            "finished": None,
            "machine": {
                "system": platform.platform(),
                "processor": platform.processor() or platform.machine(),
                "training_workers": resources.num_workers,
                "cpus_per_worker": resources.cpus_per_worker,
                "gpu": resources.use_gpu,
                "scorers": resources.num_scorers,
            },
        },
    )


def _write_result(
    folder: RunFolder, config: RunConfig, cache: StageCache, evaluated: Sequence[Split], seconds: float
) -> None:
    provenance = read_json(folder.path / "provenance.json")
    provenance["finished"] = datetime.now(UTC).isoformat(timespec="milliseconds")
    folder.write_json("provenance.json", provenance)
    metrics = folder.metrics().to_pylist()
    folder.finish(
        {
            "run": location(folder.path),
            "method": config.method,
            "data": location(config.data),
            "labelled": config.labelled,
            "seed": config.seed,
            **{split: measured(row for row in metrics if row["split"] == split) for split in reversed(evaluated)},
            "seconds": seconds_of(cache.finished, seconds),
        }
    )


def seconds_of(finished: Sequence[Stage], elapsed: float) -> dict[str, float]:
    """Return the seconds of a run's stages by name, one that is read again under another name once, and `total`: what
    elapsed, with what earlier runs took for the stages that are reused, so that methods can be compared.
    """
    stages = {stage.digest: stage for stage in reversed(finished)}.values()
    total = elapsed + sum(stage.seconds for stage in stages if stage.reused)
    return {**{str(stage.name): round(stage.seconds, 2) for stage in reversed(stages)}, "total": round(total, 2)}
