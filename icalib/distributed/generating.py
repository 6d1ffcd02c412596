"""Making up texts for the labelled pools: one shard a Ray task."""

from __future__ import annotations

from pathlib import Path

from icalib.core.files import write_json
from icalib.core.paths import pull_all
from icalib.core.stage_cache import share
from icalib.core.storage import local_path, location
from icalib.distributed.memory import explained_shortage
from icalib.distributed.session import Resources
from icalib.distributed.shards import OnProgress, run_shards
from icalib.generation.generator import GenerateJob
from icalib.generation.shards import SUMMARY, generate_shard, generation_shards, summarise_texts, texts_path


def generate(job: GenerateJob, folder: Path, resources: Resources, on_progress: OnProgress) -> None:
    """Make up the texts of every shard that isn't there yet, then sum up who made up what.

    What a shard holds depends on (models, shard, seed) alone, so neither the number of workers nor a death shows.

    Raises:
        IcalibError: a shard failed three times.
    """
    fields = job.model_dump_json()
    numbers = range(len(generation_shards(job)))
    run_shards(
        "making up texts for",
        _generate_shard,
        [(fields, number, location(folder)) for number in numbers],
        [texts_path(folder, number) for number in numbers],
        resources,
        on_progress,
        use_gpu=resources.use_gpu and bool(job.models),
    )
    write_json(folder / SUMMARY, summarise_texts(job, folder))


def _generate_shard(fields: str, number: int, place: str) -> None:
    import torch

    torch.set_num_threads(1)  # as many processes as cores; and results don't depend on the number of threads
    job, folder = GenerateJob.model_validate_json(fields), local_path(place)
    pull_all(job)
    device = torch.device("cuda" if torch.cuda.is_available() and job.models else "cpu")
    with explained_shortage("making up texts", "Lower `generator.max_source_tokens` or `generator.max_target_tokens`."):
        generate_shard(job, number, folder, device)
    share(folder, texts_path(folder, number).name)
