"""The stages of runs, cached or not, without computing any of them.

The run's own regime requests its own jobs, so a stage has the digest that it will have in the run. The exception are
students whose pseudo labels are not yet known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import final

import pyarrow as pa
import pyarrow.parquet as pq

from icalib.core.files import write_json
from icalib.core.job import Job
from icalib.core.stage_cache import Stage, StageName, cached_stage
from icalib.data.pools import read_pool_set
from icalib.parts.fit import FitJob
from icalib.parts.sum import PARTS_FILE, PartWeight, SumOfParts
from icalib.pipeline.config import RunConfig
from icalib.pipeline.run import CACHE, EVALUATED, RunContext, stages_of
from icalib.regimes.pseudo_labelling import SUMMARY, PseudoLabelJob
from icalib.regimes.regime import AbstractRegime
from icalib.stages.executor import LocalExecutor
from icalib.training.job import TrainingJob


def dry(chosen: Sequence[RunConfig], runs: Path, *, fresh: bool = False) -> list[Stage]:
    """Return the distinct stages of runs that share the stage cache in `runs`, in order; `fresh` reuses none."""
    found: dict[str, Stage] = {}
    for config in chosen:
        for stage in _stages(config, runs):
            found.setdefault(stage.digest, replace(stage, reused=stage.reused and not fresh))
    return list(found.values())


def _stages(config: RunConfig, runs: Path) -> list[Stage]:
    """Return the stages that a run requests if nothing is computed."""
    pool_set = read_pool_set(config.data)
    with TemporaryDirectory(prefix="icalib-") as scratch:
        cache = _DryCache(runs / CACHE, Path(scratch))
        stages = stages_of(config, pool_set, RunContext(runs=runs, executor=LocalExecutor()), cache)
        regime: AbstractRegime = config.settings.regime.build()
        trained = regime.run(stages)
        for split in EVALUATED:
            regime.score(stages, trained.members, split)
    return cache.stages


@final
class _DryCache:
    """Returns cached stages, and in place of others a folder with what the regime reads next."""

    def __init__(self, root: Path, scratch: Path) -> None:
        self.stages: list[Stage] = []
        self._root, self._scratch = root, scratch

    def run(self, name: StageName, job: Job, build: Callable[[Path], None]) -> Stage:
        """Return the stage of a job without building it."""
        stage = cached_stage(self._root, name, job) or self._placeholder(name, job)
        self.stages.append(stage)
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
        return Stage(name, digest, folder, reused=False, seconds=0.0)
