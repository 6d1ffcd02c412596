"""Scoring pools: one shard a Ray task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from icalib.core.paths import pull_all
from icalib.core.stage_cache import share
from icalib.core.storage import local_path, location
from icalib.distributed.memory import explained_shortage
from icalib.distributed.session import Resources
from icalib.distributed.shards import OnProgress, run_shards
from icalib.scoring.job import ScoreJob, shard_intents_path, shard_path, shard_rows


def score(job: ScoreJob, folder: Path, resources: Resources, on_progress: OnProgress) -> None:
    """Score every shard that isn't there yet.

    A worker that dies is replaced and its shard scored again. What a shard holds depends on (checkpoint, shard,
    seed) alone, so neither the number of workers nor a death shows in the result.

    Raises:
        IcalibError: a shard failed three times.
    """
    shards, fields = shard_rows(job), job.model_dump_json()
    run_shards(
        "scoring",
        _score_shard,
        [(fields, number, rows.tolist(), location(folder)) for number, rows in enumerate(shards)],
        [shard_path(folder, number) for number in range(len(shards))],
        resources,
        on_progress,
        use_gpu=resources.use_gpu,
    )


def _score_shard(fields: str, number: int, rows: Sequence[int], place: str) -> None:
    import torch

    from icalib.scoring.job import score_shard

    torch.set_num_threads(1)  # as many processes as cores; and results don't depend on the number of threads
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    job, folder = ScoreJob.model_validate_json(fields), local_path(place)
    pull_all(job)
    with explained_shortage("scoring", f"Lower `scoring.max_tokens_per_batch` (it is {job.max_tokens_per_batch})."):
        score_shard(job, number, rows, folder, device)
    share(folder, shard_intents_path(folder, number).name, shard_path(folder, number).name)
