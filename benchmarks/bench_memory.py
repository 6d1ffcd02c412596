"""Peak memory of preparing and of scoring while the pools grow tenfold.

A process's peak contains that of the one that started it, so this one imports nothing heavy.
"""

from __future__ import annotations

import os
import resource
import tempfile
from pathlib import Path

from common import Ratio, dialogues, in_fresh_process, print_table, score_job, write_token_files

PREPARED = (300, 3000)
SCORED = (32, 320)


def main() -> None:
    """Measure the small and the large size, each in a process of its own."""
    source = in_fresh_process(dialogues)
    with tempfile.TemporaryDirectory() as folder:
        prepared = {f"prepare, {n} pools a split": [in_fresh_process(_prepare, source, folder, n)] for n in PREPARED}
        scored: dict[str, list[float]] = {}
        for n in SCORED:
            work = Path(folder) / f"score-{n}"
            in_fresh_process(write_token_files, work, n)
            in_fresh_process(_save_small_ranker, work / "checkpoint")
            scored[f"score, {n} pools"] = [in_fresh_process(_score, work)]
    for figures in (prepared, scored):
        small, large = figures
        print_table("Peak memory while the pools grow tenfold", "MiB", figures, [Ratio(large, small)])


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _prepare(source: Path, folder: str, limit: int) -> float:
    from icalib.data.prepare import PrepareSettings, prepare

    prepare(source, Path(folder) / f"pools-{limit}", PrepareSettings(limit=limit))
    return _peak()


def _save_small_ranker(checkpoint: Path) -> None:
    from icalib.encoders.transformer import TransformerEncoder
    from icalib.models.checkpoint import RankerConfig, save_ranker
    from icalib.models.ranker import Ranker

    config = RankerConfig(encoder=TransformerEncoder.Config(num_layers=1))
    save_ranker(checkpoint, config, Ranker(config).state_dict())


def _score(work: Path) -> float:
    import torch

    from icalib.distributed.session import EVERYWHERE
    from icalib.uncertainty.estimator import MCDropout

    os.environ.update(EVERYWHERE)
    job = score_job(work, MCDropout.Config(num_passes=2), pools_per_shard=32)
    with tempfile.TemporaryDirectory() as folder:
        for number, rows in enumerate(job.shards()):
            job.compute_shard(number, rows, Path(folder), torch.device("cpu"))
    return _peak()


if __name__ == "__main__":
    main()
