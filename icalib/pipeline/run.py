"""One run: a method on a data set with a seed, from pools to metrics."""

from __future__ import annotations

import platform
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

import icalib
from icalib.calibration.post_hoc import post_hoc_metrics
from icalib.core.component import Settings
from icalib.core.errors import RunFolderError, SettingError
from icalib.core.files import FOLDER_NAME, content_digest, read_json
from icalib.core.paths import Stored
from icalib.core.run_folder import METRIC_SCHEMA, PLAN, TRAINING_SCHEMA, RunFolder
from icalib.core.stage_cache import Stage, StageCache
from icalib.core.storage import is_mirrored, location, pull, push, remove
from icalib.data.pools import read_pool_set
from icalib.data.schema import PoolSet, Split
from icalib.data.selection import Fraction, Limit, Selection
from icalib.distributed.session import Resources
from icalib.distributed.untrained import fit_platt, score_untrained, untrained_table
from icalib.generation.shards import SUMMARY, made_up_texts
from icalib.methods.composition import Method, Untrained
from icalib.metrics.classification import fit_threshold
from icalib.metrics.pairs import PoolScores
from icalib.models.config import RankerConfig
from icalib.pipeline.evaluation import Fitted, MemberScores, fit, intent_table, prediction_table
from icalib.pipeline.stages import OnEpochs, RayWorkbench, unheard
from icalib.regimes.gain import GainRule
from icalib.regimes.regime import Member, Parts, score_members

PACKAGES = ("torch", "ray", "deepspeed", "transformers", "numpy", "pyarrow", "scikit-learn", "scipy")
EVALUATED: tuple[Split, ...] = ("validation", "test")


class RunSettings(Settings):
    """Everything that decides a run's numbers; config.yaml holds it."""

    method: str
    data: Stored
    labelled: Fraction
    seed: int
    limit: Limit = Field(default={})
    backbone: str
    experiment: str = Field(pattern=FOLDER_NAME)
    settings: Method | Untrained
    metrics: tuple[str, ...] = Field(default=(), exclude_if=lambda metrics: not metrics)
    """Import paths of further metrics to compute, e.g. `my_lab.metrics:mean_rank`."""


@dataclass(frozen=True)
class Surroundings:
    """Where a run happens: folders, resources, who listens; and what of its outcome is wanted.

    Args:
        runs: folder of experiments and of the stage cache.
        on_update: called with the run's folder after each stage but scoring.
        on_epochs: hears validation's figures while models are trained, and may end the run.
        evaluated: splits to predict and measure; a sweep's trials leave test out.
        keep_checkpoints: whether the run's folder gets the model.
    """

    runs: Path
    resources: Resources
    reporter: Listener
    on_update: Callable[[RunFolder], None]
    command: str
    on_epochs: OnEpochs = unheard
    evaluated: tuple[Split, ...] = EVALUATED
    keep_checkpoints: bool = True


class Listener(Protocol):
    """Hears what goes on, for people."""

    def stage(self, name: str, detail: str) -> None:
        """A stage begins."""
        ...

    def advance(self, name: str, done: float, total: float | None, note: str = "") -> None:
        """So much of it is done."""
        ...

    def finished(self, name: str, seconds: float, reused: bool) -> None:
        """It is over."""
        ...

    def message(self, text: str) -> None:
        """Anything else worth a line."""
        ...


def run_folder_of(settings: RunSettings, runs: Path) -> RunFolder:
    """runs/<experiment>/<method>-<data>-<labelled>-s<seed>."""
    data = settings.data.name
    name = f"{settings.method}-{data}-{settings.labelled:g}-s{settings.seed}"
    return RunFolder(runs / settings.experiment / name)


def run(
    settings: RunSettings, surroundings: Surroundings, *, fresh: bool = False, folder: RunFolder | None = None
) -> RunFolder:
    """Run a method, or go on with a run that was interrupted; a finished one is returned as it is.

    Args:
        settings: decide the numbers.
        surroundings: decide where and how.
        fresh: compute everything anew.
        folder: where to write; None takes runs/<experiment>/<method>-<data>-<labelled>-s<seed>.

    Raises:
        SettingError: the method doesn't fit the data, or the folder holds a run with other settings.
        RunFolderError: the folder was written by another version.
    """
    pool_set = read_pool_set(settings.data)
    check_fits(settings, pool_set)
    folder = folder or run_folder_of(settings, surroundings.runs)
    if fresh:
        remove(folder.path)
    pull(folder.path, leave_out="checkpoints")
    if _claim(folder, settings):
        surroundings.reporter.message(f"{location(folder.path)} is finished already; --fresh starts it anew.")
        return folder
    started = datetime.now(UTC).isoformat(timespec="milliseconds")
    _write_provenance(folder, pool_set, surroundings, started)
    _keep_plan(folder, settings, surroundings.runs)
    begun = time.monotonic()
    cache = stage_cache(surroundings, fresh=fresh, log=_StageLog(folder))
    if isinstance(settings.settings, Untrained):
        fitted = _evaluate_untrained(folder, settings, settings.settings, surroundings)
    else:
        fitted = _train_and_evaluate(folder, settings, settings.settings, pool_set, surroundings, cache)
    _write_metrics(folder, fitted, settings, pool_set, surroundings.evaluated)
    _show(folder, surroundings)
    _write_result(folder, settings, cache, surroundings.evaluated, time.monotonic() - begun)
    push(folder.path)
    return folder


def plan_path(settings: RunSettings, runs: Path) -> Path:
    """Where `icalib plan` keeps what it expects of a run."""
    return runs / ".cache" / "plans" / f"plan-{content_digest(settings.model_dump(mode='json'))}.json"


def _keep_plan(folder: RunFolder, settings: RunSettings, runs: Path) -> None:
    """A plan that was made of the run goes with it, for its report."""
    path = plan_path(settings, runs)
    pull(path)
    if path.is_file():
        folder.write_json(PLAN, read_json(path))


def check_fits(settings: RunSettings, pool_set: PoolSet) -> None:
    """Refuse what can't work before any computing starts."""
    for split in EVALUATED:
        if not pool_set.num_pools[split]:
            raise SettingError(
                f"{settings.data} has no {split} pools, but thresholds are fitted on validation and figures come from "
                "test. Prepare data with all three splits."
            )
    method = settings.settings
    if isinstance(method, Method):
        method.regime.check()
        method.encoder.check(method.sizes_of_pools(pool_set.num_candidates))
    if isinstance(method, Method) and method.regime.needs_intents() and not pool_set.intents:
        raise SettingError(
            f"`{settings.method}` learns from intents, and no utterance of {settings.data} has any. "
            "Take `tsst` (self-training without intents) or `bert`, or label the intents of some dialogues."
        )


def _claim(folder: RunFolder, settings: RunSettings) -> bool:
    """Write the config of a new run, or check that the folder's is the same; tells whether it is finished."""
    wanted = settings.model_dump(mode="json")
    if (folder.path / "config.yaml").is_file():
        folder.check_version()
        found = {name: value for name, value in folder.config.items() if name != "version"}
        different = sorted(differences(found, wanted))
        if different:
            raise SettingError(
                f"{folder.path} holds a run with other settings ({', '.join(different[:5])}). "
                "Give --fresh to replace it, or another --experiment to keep both."
            )
        return folder.is_finished
    if folder.path.exists() and any(folder.path.iterdir()):
        raise RunFolderError(f"{folder.path} is there and is no run folder. Choose another --experiment or remove it.")
    folder.write_config(wanted)
    return False


def differences(found: Any, wanted: Any, path: str = "") -> set[str]:
    """Dotted names of the settings that differ."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        return {
            name
            for key in found.keys() | wanted.keys()
            for name in differences(found.get(key), wanted.get(key), f"{path}.{key}".lstrip("."))
        }
    return set() if found == wanted else {path}


class _StageLog:
    """Keeps stages.json up to date; what a run computed before it was interrupted counts as computed by it."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._records = {record["name"]: record for record in folder.stages}

    def add(self, stage: Stage) -> None:
        """A stage is finished."""
        record, before = stage.record(), self._records.get(stage.name)
        own = before is not None and before["digest"] == stage.digest and not before["reused"]
        self._records[stage.name] = {**record, "reused": stage.reused and not own}
        self._folder.write_json("stages.json", list(self._records.values()))


def stage_cache(surroundings: Surroundings, *, fresh: bool = False, log: _StageLog | None = None) -> StageCache:
    """The cache beside the runs; the surroundings' reporter hears of every stage."""
    reporter = surroundings.reporter

    def on_start(name: str, reused: bool) -> None:
        if not reused:
            reporter.stage(name, "")

    def on_finish(stage: Stage) -> None:
        if log is not None:
            log.add(stage)
        reporter.finished(stage.name, stage.seconds, stage.reused)

    def on_wait(name: str) -> None:
        reporter.message(f"{name}: another process computes the same; waiting for it")

    return StageCache(
        surroundings.runs / ".cache", on_start=on_start, on_finish=on_finish, on_wait=on_wait, fresh=fresh
    )


def _train_and_evaluate(
    folder: RunFolder,
    settings: RunSettings,
    method: Method,
    pool_set: PoolSet,
    surroundings: Surroundings,
    cache: StageCache,
) -> Fitted:
    record = _Record(folder, surroundings)
    bench, parts = set_up(settings, method, pool_set, surroundings, cache, after_stage=record.add)
    trained = method.regime.build().run(bench, parts)
    folder.write_json("chosen.json", {"round": trained.chosen_round, "num_rounds": trained.num_rounds})
    rule = method.regime.view_rule()
    scores = {
        split: MemberScores(score_members(bench, trained.members, split, with_intents=rule is not None))
        for split in surroundings.evaluated
    }
    fitted = fit(
        scores["validation"], rule, method.calibration, method.train_prior(pool_set.num_candidates), method.decision
    )
    for split, members in scores.items():
        folder.write_table(f"predictions/{split}.parquet", prediction_table(members, fitted))
        intents = intent_table(members, pool_set.intents)
        if intents is not None:
            folder.write_table(f"predictions/{split}_intents.parquet", intents)
    if surroundings.keep_checkpoints:
        _keep_checkpoints(trained.members, folder)
    fitted.save(folder.fitted_path)
    return fitted


def set_up(
    settings: RunSettings,
    method: Method,
    pool_set: PoolSet,
    surroundings: Surroundings,
    cache: StageCache,
    *,
    after_stage: Callable[[str, int, Stage], None] = lambda _name, _number, _stage: None,
) -> tuple[RayWorkbench, Parts]:
    """What a method's regime runs with; post-training, or the models that the encoder starts from, are done by then."""
    ranker = ranker_of(method, pool_set)
    bench = RayWorkbench(
        data=settings.data,
        pool_set=pool_set,
        selection=Selection(labelled_fraction=settings.labelled, limit=settings.limit),
        encoder=method.encoder,
        scoring=method.scoring,
        cache=cache,
        resources=surroundings.resources,
        reporter=surroundings.reporter,
        seed=settings.seed,
        after_stage=after_stage,
        on_epochs=surroundings.on_epochs,
    )
    bench.check_labels()
    start = bench.post_train(ranker, method.post_training) if method.post_training else None
    if method.preliminary is not None:
        ranker, start = bench.preliminary(ranker, method.preliminary)
    return bench, Parts(ranker=ranker, loss=method.loss, estimator=method.uncertainty, start=start)


def ranker_of(method: Method, pool_set: PoolSet) -> RankerConfig:
    """The ranker that a method trains on some pools."""
    return RankerConfig(
        encoder=method.encoder,
        head=method.head,
        similarity_start=method.similarity_start,
        intents=pool_set.intents if method.regime.needs_intents() else (),
        link=method.loss.link,
    )


def _show(folder: RunFolder, surroundings: Surroundings) -> None:
    """Let others see how far a run has come."""
    surroundings.on_update(folder)
    push(folder.path)


class _Record:
    """Adds each finished stage to the run's tables; steps go on over the stages."""

    def __init__(self, folder: RunFolder, surroundings: Surroundings) -> None:
        self._folder, self._surroundings = folder, surroundings
        self._rows: list[dict[str, Any]] = []
        self._last_step = 0

    def add(self, name: str, number: int, stage: Stage) -> None:
        """A training or pseudo-label stage is finished."""
        kind = name.rpartition("/")[2].replace("-", "_")
        if (stage.path / "curve.json").is_file():
            curve = read_json(stage.path / "curve.json")
            self._rows += [
                {**point, "stage": kind, "round": number, "step": point["step"] + self._last_step} for point in curve
            ]
            self._last_step += int(read_json(stage.path / "result.json")["updates"])
            self._folder.write_table("training.parquet", pa.Table.from_pylist(self._rows, schema=TRAINING_SCHEMA))
        if kind == "pseudo_labels":
            self._add_round(number, stage)
        if (stage.path / SUMMARY).is_file():
            self._add_made_up(stage)
        _show(self._folder, self._surroundings)

    def _add_made_up(self, stage: Stage) -> None:
        """The texts that a generator made up, for people to look at, and which generator it was."""
        summary = read_json(stage.path / SUMMARY)
        self._folder.write_table(f"made_up/{stage.name}.parquet", pa.concat_tables(made_up_texts(stage.path)))
        provenance = read_json(self._folder.path / "provenance.json")
        self._folder.write_json("provenance.json", {**provenance, "made_up": summary})
        texts = {source: number for kind in ("answers", "contexts") for source, number in summary[kind].items()}
        self._surroundings.reporter.message(
            f"{stage.name.replace('-', ' ')}: {summary['generator']}; for {summary['num_pools']} pools "
            + (", ".join(f"{number} × {source}" for source, number in texts.items()) or "none was found")
        )

    def _add_round(self, number: int, stage: Stage) -> None:
        shards = [pq.read_table(path) for path in sorted(stage.path.glob("pseudo-*.parquet"))]
        summary = read_json(stage.path / "summary.json")
        self._folder.write_table(f"rounds/{number}/pseudo_labels.parquet", pa.concat_tables(shards))
        self._folder.write_json(f"rounds/{number}/summary.json", summary)
        accuracy = summary["pool_accuracy"]
        self._surroundings.reporter.message(
            f"round {number}: {summary['num_pools_selected']} of {summary['num_pools_scored']} pools pseudo-labelled, "
            f"{summary['share_with_intents']:.0%} of pairs with intents"
            + (f", {accuracy:.0%} of them right" if accuracy is not None else "")
        )


def _evaluate_untrained(
    folder: RunFolder, settings: RunSettings, method: Untrained, surroundings: Surroundings
) -> Fitted:
    selection = Selection(labelled_fraction=settings.labelled, limit=settings.limit)
    surroundings.reporter.stage(settings.method, "")
    started = time.monotonic()
    scored = score_untrained(settings.data, surroundings.evaluated, method, selection)
    platt = fit_platt(scored["validation"])
    for split in surroundings.evaluated:
        folder.write_table(f"predictions/{split}.parquet", untrained_table(scored[split], platt))
    surroundings.reporter.finished(settings.method, time.monotonic() - started, False)
    validation = PoolScores.from_predictions(folder.predictions("validation"))
    threshold = fit_threshold(validation.prob, validation.label)
    fitted = Fitted(rule=GainRule(), calibration=platt, decision_threshold=threshold)
    fitted.save(folder.fitted_path)
    return fitted


def _write_metrics(
    folder: RunFolder, fitted: Fitted, settings: RunSettings, pool_set: PoolSet, evaluated: Sequence[Split]
) -> None:
    tables: list[pa.Table] = []
    for split in evaluated:
        table = fitted.summarise(folder.predictions(split), seed=settings.seed, also=settings.metrics)
        tables.append(table.add_column(0, METRIC_SCHEMA.field("split"), pa.array([split] * table.num_rows)))
    method = settings.settings
    if "test" in evaluated and (isinstance(method, Untrained) or method.calibration is None):
        # what each calibrator would add
        prior = None if isinstance(method, Untrained) else method.train_prior(pool_set.num_candidates)
        tables.append(post_hoc_metrics(folder.predictions("validation"), folder.predictions("test"), train_prior=prior))
    folder.write_table("metrics.parquet", pa.concat_tables(tables))


def _keep_checkpoints(members: Sequence[Member], folder: RunFolder) -> None:
    """Copies that stay when the cache is cleared, each model once, and members.json that says who uses which."""
    remove(folder.checkpoint_path)
    models = list(dict.fromkeys(member.model.path for member in members))
    targets = {
        model: folder.checkpoint_path if len(models) == 1 else folder.checkpoint_path / f"member-{place}"
        for place, model in enumerate(models)
    }
    for model, target in targets.items():
        _copy_folder(model / "checkpoint", target)
    folder.write_json(
        "members.json",
        [
            {
                "checkpoint": targets[member.model.path].relative_to(folder.path).as_posix(),
                "estimator": member.estimator.model_dump(mode="json"),
            }
            for member in members
        ],
    )


def _copy_folder(source: Path, target: Path) -> None:
    """Hard links where the file system has them, and no object store gives each copy a time of its own."""
    try:
        shutil.copytree(source, target, copy_function=shutil.copyfile if is_mirrored(target) else _link)
    except OSError:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)


def _link(source: str, target: str) -> None:
    Path(target).hardlink_to(source)


def _write_provenance(folder: RunFolder, pool_set: PoolSet, surroundings: Surroundings, started: str) -> None:
    folder.write_json(
        "provenance.json",
        {
            "icalib": icalib.__version__,
            "python": platform.python_version(),
            "packages": {name: _version(name) for name in PACKAGES},
            "command": surroundings.command,
            "data_digest": pool_set.digest,
            "context_turns": pool_set.context_turns,
            "started": started,
            "finished": None,
            "machine": {
                "system": platform.platform(),
                "processor": platform.processor() or platform.machine(),
                "training_workers": surroundings.resources.num_workers,
                "cpus_per_worker": surroundings.resources.cpus_per_worker,
                "gpu": surroundings.resources.use_gpu,
                "scorers": surroundings.resources.num_scorers,
            },
        },
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _write_result(
    folder: RunFolder, settings: RunSettings, cache: StageCache, evaluated: Sequence[Split], seconds: float
) -> None:
    provenance = read_json(folder.path / "provenance.json")
    provenance["finished"] = datetime.now(UTC).isoformat(timespec="milliseconds")
    folder.write_json("provenance.json", provenance)
    metrics = folder.metrics().to_pylist()
    folder.write_json(
        "result.json",
        {
            "run": location(folder.path),
            "method": settings.method,
            "data": location(settings.data),
            "labelled": settings.labelled,
            "seed": settings.seed,
            **{
                split: {row["metric"]: row["value"] for row in metrics if row["split"] == split}
                for split in reversed(evaluated)
            },
            "seconds": {
                **{stage.name: round(stage.seconds, 2) for stage in cache.finished},
                "total": _total(cache.finished, seconds),
            },
        },
    )


def _total(stages: Sequence[Stage], seconds: float) -> float:
    """Seconds as if nothing had been reused, so that methods can be compared."""
    return round(seconds + sum(stage.seconds for stage in stages if stage.reused), 2)
