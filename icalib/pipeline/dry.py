"""The stages of runs without computing any of them: which are cached, and how long the others took in earlier runs.

The run's own regime requests its own jobs, so a stage has the digest that it will have in the run. The exception are
students whose pseudo labels are not yet known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, final

import pyarrow as pa
import pyarrow.parquet as pq

from icalib.core.errors import IcalibError
from icalib.core.files import write_json
from icalib.core.job import Job
from icalib.core.run_folder import RunFolder
from icalib.core.stage_cache import Stage, StageName, cached_stage
from icalib.data.pools import read_column, read_pool_set
from icalib.data.schema import SPLITS, Split
from icalib.data.selection import Subset
from icalib.parts.fit import FitJob
from icalib.parts.intent_encoder import IntentEncoderJob
from icalib.parts.job import ColumnJob
from icalib.parts.similarity import SimilarityJob
from icalib.parts.sum import PARTS_FILE, PartWeight, SumOfParts
from icalib.pipeline.config import RunConfig
from icalib.pipeline.run import CACHE, EVALUATED, RunContext, stages_of
from icalib.regimes.pseudo_labelling import SUMMARY, PseudoLabelJob
from icalib.regimes.regime import AbstractRegime
from icalib.stages.executor import LocalExecutor
from icalib.stages.tokens import TokenizeJob
from icalib.training.cross_encoder import CrossEncoderJob
from icalib.training.job import TrainingJob
from icalib.uncertainty.estimator import MCDropout

_MAX_FINISHED = 50  # the newest ones; more would only repeat what these say

Rates = Mapping[tuple[str, ...], float]
"""Seconds per unit of work, by (method, backbone, stage label) and by (backbone, stage label)."""


@final
@dataclass(frozen=True)
class DryStage:
    """A stage that a run needs; stages with the same digest are computed once."""

    name: StageName
    digest: str
    is_cached: bool
    work: float  # pools times epochs, or times passes and views: only to compare stages of the same label
    seconds: float | None = None  # 0 if it is cached, None if no finished run has such a stage


def dry(chosen: Sequence[RunConfig], runs: Path, *, fresh: bool = False) -> list[DryStage]:
    """Return the distinct stages of runs that share the stage cache in `runs`, in order; `fresh` reuses none."""
    rates = _finished_rates(runs)
    found: dict[str, DryStage] = {}
    for config in chosen:
        for stage in _stages(config, runs):
            cached, general = stage.is_cached and not fresh, (config.backbone, stage.name.label)
            rate = rates.get((config.method, *general), rates.get(general))  # of the same method, else of any
            seconds = 0.0 if cached else None if rate is None else rate * stage.work
            found.setdefault(stage.digest, replace(stage, is_cached=cached, seconds=seconds))
    return list(found.values())


def _finished_rates(runs: Path) -> Rates:
    """Return the rates of finished runs; of several, the newest decides, as it is most like the next one."""
    results = sorted(runs.glob("*/*/result.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    rates: dict[tuple[str, ...], float] = {}
    for result in results[:_MAX_FINISHED]:
        try:
            config, of_labels = _rates_of(RunFolder(result.parent), runs)
        except IcalibError:  # damaged, of another version, or its pools are gone
            continue
        for label, rate in of_labels.items():
            rates.setdefault((config.method, config.backbone, label), rate)
            rates.setdefault((config.backbone, label), rate)
    return rates


def _rates_of(folder: RunFolder, runs: Path) -> tuple[RunConfig, dict[str, float]]:
    """Return a finished run's settings, and its seconds per unit of work by stage label."""
    config = RunConfig.recorded(folder.path / "config.yaml", folder.config)
    taken = {stage["name"]: stage["seconds"] for stage in folder.stages}
    totals: dict[str, tuple[float, float]] = {}
    for stage in _stages(config, runs):
        if str(stage.name) in taken:
            seconds, work = totals.get(stage.name.label, (0.0, 0.0))
            totals[stage.name.label] = seconds + taken[str(stage.name)], work + stage.work
    return config, {label: seconds / work for label, (seconds, work) in totals.items() if work}


def _stages(config: RunConfig, runs: Path) -> list[DryStage]:
    """Return the stages that a run requests if nothing is computed."""
    pool_set = read_pool_set(config.data)
    with TemporaryDirectory(prefix="icalib-") as scratch:
        cache = _DryCache(runs / CACHE, Path(scratch), _WorkCounter(config))
        stages = stages_of(config, pool_set, RunContext(runs=runs, executor=LocalExecutor()), cache)
        regime: AbstractRegime = config.settings.regime.build()
        trained = regime.run(stages)
        for split in EVALUATED:
            regime.score(stages, trained.members, split)
    return cache.stages


@final
class _DryCache:
    """Returns cached stages, and in place of others a folder with what the regime reads next."""

    def __init__(self, root: Path, scratch: Path, work: Callable[[Job], float]) -> None:
        self.stages: list[DryStage] = []
        self._root, self._scratch, self._work = root, scratch, work

    def run(self, name: StageName, job: Job, build: Callable[[Path], None]) -> Stage:
        """Return the stage of a job without building it."""
        found = cached_stage(self._root, name, job)
        stage = found or self._placeholder(name, job)
        self.stages.append(DryStage(name, stage.digest, found is not None, self._work(job)))
        return stage

    def _placeholder(self, name: StageName, job: Job) -> Stage:
        digest = job.digest()
        folder = self._scratch / digest
        folder.mkdir(exist_ok=True)
        if isinstance(job, TrainingJob):
            write_json(folder / "curve.json", [])
            write_json(folder / "result.json", {"best_epoch": 1})
        if isinstance(job, FitJob):  # every part may turn out to help
            parts = tuple(PartWeight(name=part, weight=1.0) for part in job.columns)
            write_json(folder / PARTS_FILE, SumOfParts(parts=parts).model_dump(mode="json"))
        if isinstance(job, PseudoLabelJob):  # labels of its own, so that no cached student has the same
            labels = {"pool_id": [digest], "candidate": [0], "label": [1], "view": ["plain"]}
            pq.write_table(pa.table(labels), folder / "pseudo-000000.parquet")
            write_json(folder / SUMMARY, {"num_pools_selected": 1})
        return Stage(name, digest, folder, reused=True, seconds=0.0)


@final
class _WorkCounter:
    """Counts the work of jobs in pools, whose lengths are taken to be alike."""

    def __init__(self, config: RunConfig) -> None:
        self._selection = config.selection
        self._label_order = {split: read_column(config.data, split, "label_order") for split in SPLITS}

    def __call__(self, job: Job) -> float:
        match job:
            case TokenizeJob(num_pools=num_pools):
                return sum(num_pools.values())
            case CrossEncoderJob() | SimilarityJob():
                part = "all" if job.pseudo_labels else "labelled"
                return self._num_pools("train", part) * max(1, job.loop_settings.epochs)
            case IntentEncoderJob():
                return self._num_pools("train", "labelled") * max(1, job.loop_settings.epochs)
            case TrainingJob():
                return self._num_pools("train", "all") * job.loop_settings.epochs
            case ColumnJob(estimator=estimator, sample=sample):
                pools = self._num_pools(job.split, job.of)
                passes = estimator.num_passes if isinstance(estimator, MCDropout.Config) else 1
                return min(sample or pools, pools) * passes * (2 if job.with_intents else 1)
            case _:
                return self._num_pools(getattr(job, "split", "train"), "all")

    def _num_pools(self, split: Split, part: Subset) -> int:
        return len(self._selection.rows(split, part, self._label_order[split]))


def summary(stages: Sequence[DryStage]) -> dict[str, Any]:
    """Return a JSON object, as printed by `--json`; the total is null if the time of a stage is unknown."""
    known = [stage.seconds for stage in stages if stage.seconds is not None]
    return {
        "stages": [
            {"name": str(one.name), "digest": one.digest, "cached": one.is_cached, "seconds": one.seconds}
            for one in stages
        ],
        "seconds": sum(known) if len(known) == len(stages) else None,
    }
