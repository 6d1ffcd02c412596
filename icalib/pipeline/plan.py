"""What runs would take: counted on the actual pools, at rates that are measured on the actual machines."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from icalib.core.component import Settings, validated_file
from icalib.core.errors import SettingError
from icalib.core.files import content_digest, read_json, write_json
from icalib.core.paths import pull_all
from icalib.core.storage import pull, push, remove
from icalib.data.encoding import TokenStore
from icalib.data.pools import read_pool_set
from icalib.data.schema import SPLITS, Split
from icalib.data.selection import Selection
from icalib.distributed.doctor.rehearsal import tiny_jobs
from icalib.distributed.engine import load_deepspeed
from icalib.distributed.scoring import score
from icalib.distributed.session import Resources
from icalib.distributed.training import train
from icalib.encoders.backbone import backbone_digest
from icalib.methods.composition import Method
from icalib.models.precision import Precision
from icalib.models.ranker import Ranker
from icalib.pipeline.counting import CountingWorkbench, Work, pairs_scored, planned
from icalib.pipeline.rates import Estimate, Machines, Rates, estimated, measure_rates
from icalib.pipeline.run import EVALUATED, RunSettings, Surroundings, check_fits, plan_path, ranker_of, stage_cache
from icalib.pipeline.stages import RayWorkbench
from icalib.regimes.regime import Parts
from icalib.training.job import TrainJob

_MEASURED_POOLS = 100
_PLANS = "plans"


class Calibration(Settings):
    """What was measured on the machines: rates, and seconds before a stage does anything."""

    rates: Rates
    training_start: float
    scoring_start: float


@dataclass(frozen=True)
class Plan:
    """What some runs take together.

    Args:
        stages: each that is computed, once.
        reused: how many more stages the runs share with others of them.
        memory: peak bytes of a training worker.
        machines: what the work is divided by.
    """

    stages: tuple[Estimate, ...]
    reused: int
    memory: int
    machines: Machines

    @property
    def seconds(self) -> tuple[float, float, float]:
        """Least, expected and most seconds of all stages, one after the other."""
        sums = (sum(getattr(stage, name) for stage in self.stages) for name in ("low", "seconds", "high"))
        low, expected, high = sums
        return low, expected, high

    def as_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        low, expected, high = self.seconds
        return {
            "stages": [asdict(stage) for stage in self.stages],
            "stages_reused": self.reused,
            "seconds": {"expected": expected, "low": low, "high": high},
            "memory": self.memory,
            "machines": asdict(self.machines),
        }


def plan(
    runs: Sequence[RunSettings], surroundings: Surroundings, *, pairs: float | None = None, fresh: bool = False
) -> Plan:
    """Plan runs that share the stage cache, as the trials of a sweep do; what is cached already counts too.

    The plan of a single run is kept beside the cache, and the run's report shows it.

    Args:
        runs: settings of each.
        surroundings: the machines, and where the cache lies.
        pairs: score so many more pairs, as the test pairs are scored.
        fresh: measure the machines anew.

    Raises:
        SettingError: a method that can't be counted.
    """
    counted = [_count(settings, surroundings) for settings in runs]
    distinct = {work.digest: work for _, works in counted for work in works}
    reused = sum(len(works) for _, works in counted) - len(distinct)
    job, works = counted[0]
    if pairs is not None:
        distinct["pairs"] = pairs_scored(works, pairs)
    found = _calibration(runs[0], job, surroundings, fresh=fresh)
    resources = surroundings.resources
    machines = Machines(
        num_workers=resources.num_workers,
        threads=1 if resources.use_gpu else resources.cpus_per_worker,
        num_scorers=resources.num_scorers,
        training_start=found.training_start,
        scoring_start=found.scoring_start,
    )
    stages = tuple(estimated(work, found.rates, machines) for work in distinct.values())
    made = Plan(stages, reused, found.rates.memory, machines)
    if len(runs) == 1:
        path = plan_path(runs[0], surroundings.runs)
        write_json(path, made.as_json())
        push(path)
    return made


def _count(settings: RunSettings, surroundings: Surroundings) -> tuple[TrainJob, Sequence[Work]]:
    """What a run will do, and a training like its own over a few of its pools; the pools are tokenised for it."""
    pool_set, method = read_pool_set(settings.data), settings.settings
    check_fits(settings, pool_set)
    if not isinstance(method, Method):
        raise SettingError(f"`{settings.method}` trains nothing: there is nothing to plan.")
    selection = Selection(labelled_fraction=settings.labelled, limit=settings.limit)
    bench = RayWorkbench(
        data=settings.data,
        pool_set=pool_set,
        selection=selection,
        encoder=method.encoder,
        scoring=method.scoring,
        cache=stage_cache(surroundings),
        resources=surroundings.resources,
        reporter=surroundings.reporter,
        seed=settings.seed,
    )
    load_deepspeed()  # transformers imports it to build a model, and it would have much to say
    config = ranker_of(method, pool_set)
    parts = Parts(ranker=config, loss=method.loss, estimator=method.uncertainty, start=None)
    stores: dict[Split, TokenStore] = {split: bench.store(split) for split in SPLITS}
    with TemporaryDirectory(prefix="icalib-") as scratch:
        counting = CountingWorkbench(stores, selection, Ranker(config, pretrained=False), settings.seed, Path(scratch))
        works = planned(method, parts, counting, EVALUATED)
    job = TrainJob(
        kind="answers",
        ranker=config,
        loss=method.loss,
        training=counting.first_training,
        selection=Selection(labelled_fraction=1.0, limit={"train": _MEASURED_POOLS}),
        train_tokens=bench.tokens("train"),
        validation_tokens=bench.tokens("validation"),
        seed=settings.seed,
    )
    return job, works


def _calibration(settings: RunSettings, job: TrainJob, surroundings: Surroundings, *, fresh: bool) -> Calibration:
    """Rates and start-up times: from the cache, else measured."""
    assert isinstance(settings.settings, Method)
    scoring, resources = settings.settings.scoring, surroundings.resources
    facts = {
        "machine": [platform.node(), platform.machine(), resources.use_gpu, resources.cpus_per_worker],
        "workers": resources.num_workers,
        "versions": [version(name) for name in ("torch", "transformers", "deepspeed", "ray")],
        "ranker": {**job.ranker.model_dump(mode="json"), "backbone": backbone_digest(settings.backbone)},
        "loss": job.loss.model_dump(mode="json"),
        "training": job.training.model_dump(mode="json", include=set(_MEASURED)),
        "scoring": scoring.model_dump(mode="json"),
    }
    path = surroundings.runs / ".cache" / _PLANS / f"rates-{content_digest(facts)}.json"
    pull(path)
    if path.is_file() and not fresh:
        return validated_file(path, Calibration, read_json(path))
    rates = _measured_rates(job, scoring.precision, scoring.max_tokens_per_batch, resources)
    found = Calibration(rates=rates, **_starts(surroundings))
    write_json(path, found.model_dump(mode="json"))
    push(path)
    return found


_MEASURED = ("batch_size", "max_tokens_per_batch", "gradient_accumulation", "precision", "train_negatives")
"""Training settings that shape an update."""


def _measured_rates(job: TrainJob, precision: Precision, max_tokens: int, resources: Resources) -> Rates:
    import ray

    task = ray.remote(num_cpus=resources.cpus_per_worker, num_gpus=1 if resources.use_gpu else 0)(_measure)
    return Rates.model_validate_json(
        ray.get(task.remote(job.model_dump_json(), precision, max_tokens, resources.cpus_per_worker))
    )


def _measure(fields: str, precision: Precision, max_tokens: int, threads: int) -> str:
    import torch

    torch.set_num_threads(threads)
    job = TrainJob.model_validate_json(fields)
    pull_all(job)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return measure_rates(job, precision=precision, max_tokens=max_tokens, device=device).model_dump_json()


def _starts(surroundings: Surroundings) -> dict[str, float]:
    """Seconds of a training and a scoring so small that starting is all they do."""
    folder = surroundings.runs / ".cache" / _PLANS / "start"
    resources = surroundings.resources
    try:
        training, scoring = tiny_jobs(folder, resources.num_workers)
        # The first training starts processes and reads libraries that those after it find.
        train(training, folder / "first", resources)
        begun = time.monotonic()
        train(training, folder / "training", resources)
        trained = time.monotonic()
        score(scoring, folder / "scores", resources, lambda _done, _total, _note: None)
        return {"training_start": trained - begun, "scoring_start": time.monotonic() - trained}
    finally:
        remove(folder)
