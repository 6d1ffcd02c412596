"""Plans of runs: work counted on the actual pools, at rates measured on the actual machines."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import torch
from typing_extensions import override

from icalib.core.component import Settings, validated_file
from icalib.core.errors import SettingError
from icalib.core.events import ignore
from icalib.core.files import read_json, write_json
from icalib.core.job import ShardedJob
from icalib.core.stage_cache import StageCache, StageName
from icalib.core.storage import push, remove
from icalib.data.pools import read_pool_set
from icalib.data.selection import Selection
from icalib.encoders.backbone import load_config
from icalib.encoders.transformer import BackboneEncoder
from icalib.models.precision import Precision
from icalib.pipeline.counting import CountingExecutor, Work, pairs_scored, with_passes
from icalib.pipeline.executor import Executor
from icalib.pipeline.gpu_rates import SPREAD, TabledGpus
from icalib.pipeline.rates import Estimate, Machines, Rates, estimated, measure_rates
from icalib.pipeline.resources import Resources
from icalib.pipeline.run import CACHE, EVALUATED, RunContext, RunSettings, check_fits, plan_path, stages_of, start
from icalib.pipeline.stages import RunStages
from icalib.pipeline.tiny import tiny_jobs
from icalib.regimes.regime import AbstractRegime
from icalib.training.answers import TrainJob
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import MCDropout

_MEASURED_POOLS = 100
_MEASURED = ("batch_size", "max_tokens_per_batch", "gradient_accumulation", "precision", "train_negatives")
"""Training settings that determine the cost of an update."""


_ASSUMED_STARTS = (30.0, 15.0)  # seconds until a training, and a scoring, begin on GPUs that aren't here


class RatesJob(ShardedJob):
    """Measures the time per input of training and scoring on a machine."""

    verb: ClassVar[str] = "measuring"

    job: TrainJob
    precision: Precision
    max_tokens: int
    threads: int
    machine: tuple[str, ...]
    """Identifies the machine and its software."""

    @property
    @override
    def num_threads(self) -> int:
        return self.threads

    @override
    def shards(self) -> Sequence[Any]:
        return [None]

    @override
    def shard_path(self, folder: Path, index: int) -> Path:
        return folder / "rates.json"

    @override
    def compute_shard(self, index: int, shard: Any, folder: Path, device: torch.device) -> None:
        rates = measure_rates(self.job, precision=self.precision, max_tokens=self.max_tokens, device=device)
        write_json(self.shard_path(folder, index), rates.model_dump(mode="json"))


class Starts(Settings):
    """Start-up seconds of a stage."""

    training: float
    scoring: float


@dataclass(frozen=True)
class Plan:
    """Estimated cost of some runs.

    Args:
        stages: the distinct stages to compute.
        reused: number of further stages, which reuse one of these.
        memory: peak memory of a training worker in bytes; 0 if it isn't measured.
        machines: the machines that do the work.
        basis: what the times are based on; empty if they were measured on these machines.
        per_million: scoring a million pairs like those of the test split, by the number of passes.
        backbone: what they are scored with, for people.
    """

    stages: tuple[Estimate, ...]
    reused: int
    memory: int
    machines: Machines
    per_million: Mapping[int, Estimate]
    backbone: str
    basis: str = ""

    @property
    def seconds(self) -> tuple[float, float, float]:
        """Minimum, expected and maximum seconds of all stages, run sequentially."""
        sums = (sum(getattr(stage, name) for stage in self.stages) for name in ("low", "seconds", "high"))
        low, expected, high = sums
        return low, expected, high

    def as_json(self) -> dict[str, Any]:
        """Return a JSON object, as printed by `--json`."""
        low, expected, high = self.seconds
        return {
            "stages": [asdict(stage) for stage in self.stages],
            "stages_reused": self.reused,
            "seconds": {"expected": expected, "low": low, "high": high},
            "memory": self.memory,
            "machines": asdict(self.machines),
            "basis": self.basis,
            "backbone": self.backbone,
            "per_million_pairs": [
                {"passes": passes, "seconds": {"expected": one.seconds, "low": one.low, "high": one.high}}
                for passes, one in self.per_million.items()
            ],
        }


def plan(
    runs: Sequence[RunSettings],
    context: RunContext,
    *,
    pairs: float | None = None,
    gpus: TabledGpus | None = None,
    fresh: bool = False,
) -> Plan:
    """Plan runs that use the same stage cache, such as the trials of a sweep.

    Stages that are already cached are included.
    The plan of a single run on these machines is stored next to the cache, and the run's report shows it.

    Args:
        runs: settings of each run.
        context: the machines, and where the cache is.
        pairs: number of additional pairs to score, in the same way as the test pairs.
        gpus: estimate for these GPUs, which are not here, instead of measuring.
        fresh: measure the machines again.

    Raises:
        SettingError: a method can't be planned.
    """
    counted = [count(settings, context) for settings in runs]
    distinct = {work.digest: work for executor in counted for work in executor.works}
    reused = sum(len(executor.works) for executor in counted) - len(distinct)
    if pairs is not None:
        distinct["pairs"] = pairs_scored(counted[0].answering, pairs)
    works = tuple(distinct.values())
    if gpus is not None:
        return _tabled(gpus, runs[0], counted[0], works, reused)
    rates, starts = _measured(runs[0], counted[0], context, fresh=fresh)
    resources = context.executor.resources
    machines = Machines(
        num_workers=resources.num_workers,
        threads=1 if resources.use_gpu else resources.cpus_per_worker,
        num_scorers=resources.num_scorers,
        training_start=starts.training,
        scoring_start=starts.scoring,
    )
    result = _plan(counted[0], works, reused, rates, machines)
    if len(runs) == 1:
        path = plan_path(runs[0], context.runs)
        write_json(path, result.as_json())
        push(path)
    return result


def _tabled(
    gpus: TabledGpus, settings: RunSettings, counted: CountingExecutor, works: Sequence[Work], reused: int
) -> Plan:
    """Plan work on GPUs whose rates follow from a table."""
    job, machines = counted.first_training, Machines(gpus.number, 1, gpus.number, *_ASSUMED_STARTS)
    assert job is not None
    rates = gpus.rates(
        job.ranker, batch_size=job.training.batch_size, max_tokens=settings.settings.scoring.max_tokens_per_batch
    )
    return _plan(counted, works, reused, rates, machines, tabled=gpus)


def _plan(
    counted: CountingExecutor,
    works: Sequence[Work],
    reused: int,
    rates: Rates,
    machines: Machines,
    *,
    tabled: TabledGpus | None = None,
) -> Plan:
    def estimate(work: Work) -> Estimate:
        return estimated(work, rates, machines) if tabled is None else estimated(work, rates, machines, SPREAD)

    million = pairs_scored(counted.answering, 1e6)
    return Plan(
        stages=tuple(map(estimate, works)),
        reused=reused,
        memory=rates.memory,
        machines=machines,
        per_million={passes: estimate(with_passes(million, passes)) for passes in (1, _several_passes(million))},
        backbone=described(counted.first_training),
        basis="" if tabled is None else tabled.basis,
    )


def count(settings: RunSettings, context: RunContext) -> CountingExecutor:
    """Count the work of a run; this tokenises its pools.

    Raises:
        SettingError: the method is untrained, or can't be planned.
    """
    pool_set, method = read_pool_set(settings.data), settings.settings
    check_fits(settings, pool_set)
    if not method.regime.trains:
        raise SettingError(
            f"`{settings.method}` is untrained, so it can't be planned. Plan a trained method, e.g. bert."
        )
    real = stages_of(settings, pool_set, context, StageCache(context.runs / CACHE, emit=context.emit))
    executor = CountingExecutor(context.executor.resources)
    regime: AbstractRegime = method.regime.build()
    with TemporaryDirectory(prefix="icalib-") as scratch:
        stages = RunStages(real.inputs, StageCache(Path(scratch)), executor, ignore, tokens=real.tokens_stage)
        trained = regime.run(stages, start(stages, method, pool_set))
        for split in EVALUATED:
            before = len(executor.works)
            regime.score(stages, trained.members, split)
            executor.answering = executor.works[before:]
    return executor


def _several_passes(work: Work) -> int:
    """Return the number of passes of a run with MC dropout, and for other runs the one that it has by default."""
    return work.passes if work.passes > 1 else MCDropout.Config().num_passes


def described(job: TrainJob | None) -> str:
    """Return a job's backbone with its size, for people; for encoders without one, their name."""
    assert job is not None
    encoder = job.ranker.encoder
    if not encoder.has_backbone:
        return encoder.owner.__name__
    is_known = isinstance(encoder, BackboneEncoder.Config)
    config = encoder.load_backbone_config() if is_known else load_config(encoder.backbone)
    name = encoder.backbone.rstrip("/").rpartition("/")[2]
    return f"{name} ({config.model_type}, {config.num_hidden_layers} layers, {config.hidden_size} wide)"


def _measured(
    settings: RunSettings, counted: CountingExecutor, context: RunContext, *, fresh: bool
) -> tuple[Rates, Starts]:
    """Return rates and start-up times from the cache, or measure them."""
    job = counted.first_training
    assert job is not None
    scoring, resources = settings.settings.scoring, context.executor.resources
    measured = job.model_copy(
        update={
            "training": TrainingSettings(**job.training.model_dump(include=set(_MEASURED))),
            "selection": Selection(labelled_fraction=1.0, limit={"train": _MEASURED_POOLS}),
            "views_with_intents": False,
            "start": None,
            "bi_encoder": None,
            "contrast": None,
            "generated": None,
        }
    )
    rates = RatesJob(
        job=measured,
        precision=scoring.precision,
        max_tokens=scoring.max_tokens_per_batch,
        threads=resources.cpus_per_worker,
        machine=_machine(resources),
    )
    cache = StageCache(context.runs / CACHE, fresh=fresh)
    stage = cache.run(StageName("rates"), rates, lambda folder: _measure(rates, folder, context.executor))
    return (
        validated_file(stage.path / "rates.json", Rates, read_json(stage.path / "rates.json")),
        validated_file(stage.path / "starts.json", Starts, read_json(stage.path / "starts.json")),
    )


def _machine(resources: Resources) -> tuple[str, ...]:
    versions = [version(name) for name in ("torch", "transformers", "deepspeed", "ray")]
    return (platform.node(), platform.machine(), str(resources.use_gpu), str(resources.num_workers), *versions)


def _measure(job: RatesJob, folder: Path, executor: Executor) -> None:
    executor.map(job, folder, "rates", ignore)
    scratch = folder / "start"
    try:
        training, scoring = tiny_jobs(scratch, executor.resources.num_workers)
        # The first training also starts processes and loads libraries, which later trainings reuse.
        executor.train(training, scratch / "first", "rates", ignore)
        begun = time.monotonic()
        executor.train(training, scratch / "training", "rates", ignore)
        trained = time.monotonic()
        executor.map(scoring, scratch / "scores", "rates", ignore)
        starts = Starts(training=trained - begun, scoring=time.monotonic() - trained)
    finally:
        remove(scratch)
    write_json(folder / "starts.json", starts.model_dump(mode="json"))
