"""MC-dropout scoring: pair-passes a second, beside sentence-transformers' CrossEncoder.predict with dropout left on;
and what T passes cost, as multiples of one deterministic pass.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from common import (
    BACKBONE,
    Ratio,
    alternate,
    first_pools,
    in_fresh_process,
    num_cores,
    print_table,
    score_job,
    silently,
    text_pairs,
    write_token_files,
)

from icalib.data.selection import Selection
from icalib.encoders.backbone import backbone_path
from icalib.models.checkpoint import RankerConfig, save_ranker
from icalib.models.precision import Precision, resolve_precision
from icalib.models.ranker import Ranker
from icalib.parts.job import ColumnJob
from icalib.uncertainty.estimator import AbstractEstimator, Deterministic, MCDropout

NUM_PASSES = 5
MANY_PASSES = 10  # GPF-BERT's and PG-DRR's
POOLS_PER_SHARD = 8
ROUNDS = 2
ROUNDS_OF_PASSES = 5
WARM_UP = 16


def main() -> None:
    """Score in turn: on one thread, then on all cores."""
    with tempfile.TemporaryDirectory() as folder:
        _compare(Path(folder) / "one", num_pools=POOLS_PER_SHARD, threads=1)
        _compare(Path(folder) / "all", num_pools=POOLS_PER_SHARD * num_cores(), threads=num_cores())
        _compare_passes(Path(folder) / "one")


def _compare_passes(work: Path) -> None:
    """Compare T passes over the pools of a folder that `_compare` has filled with one deterministic pass."""
    once, exact = "1 pass without dropout", f"{MANY_PASSES} passes, dropout in all layers"
    estimators: dict[str, AbstractEstimator.Config] = {
        once: Deterministic.Config(),
        exact: MCDropout.Config(num_passes=MANY_PASSES),
    }
    precisions: list[Precision] = ["fp32", "bf16"] if _default() == "bf16" else ["fp32"]
    for precision in precisions:
        figures = alternate(
            {
                name: partial(in_fresh_process, _seconds_of_shards, _job(work, precision), estimator.model_dump_json())
                for name, estimator in estimators.items()
            },
            ROUNDS_OF_PASSES,
        )
        print_table(
            f"Scoring by {MANY_PASSES} passes, {precision}, 1 thread; warm.", "s", figures, [Ratio(exact, once, "≤ 9")]
        )


def _compare(work: Path, num_pools: int, threads: int) -> None:
    write_token_files(work, num_pools)
    config = RankerConfig()
    save_ranker(work / "checkpoint", config, Ranker(config).state_dict())
    pairs, _ = text_pairs(first_pools(num_pools))
    ours = _one_thread if threads == 1 else _through_ray
    theirs = partial(in_fresh_process, silently, _sentence_transformers, pairs, threads)
    default = _default()
    contestants = {
        "icalib fp32": lambda: len(pairs) * in_fresh_process(ours, _job(work, "fp32")),
        "sentence-transformers fp32": lambda: theirs(False),
    }
    ratios = [Ratio("icalib fp32", "sentence-transformers fp32", "≥ 1.8")]
    if default == "bf16":
        contestants |= {
            "icalib bf16": lambda: len(pairs) * in_fresh_process(ours, _job(work, "bf16")),
            "sentence-transformers bf16 (autocast)": lambda: theirs(True),
        }
        ratios += [
            Ratio("icalib bf16", "sentence-transformers bf16 (autocast)", "≥ 1.8"),
            Ratio("icalib bf16", "sentence-transformers fp32", "≥ 3.5: the defaults of both"),
        ]
    figures = alternate(contestants, ROUNDS)
    where = "1 process, 1 thread" if threads == 1 else f"{threads} cores: Ray tasks, and torch threads"
    print_table(
        f"Scoring: {len(pairs)} pairs, {NUM_PASSES} dropout passes, {where}; warm.\n"
        f"Default here: {default}; theirs: fp32.",
        "pair-passes/s",
        figures,
        ratios,
    )


def _default() -> Precision:
    """Return the precision of the defaults: fp32 where bf16 is emulated, and eight times slower."""
    return resolve_precision("auto", torch.device("cpu"))


def _job(work: Path, precision: Precision) -> str:
    job = score_job(work, MCDropout.Config(num_passes=NUM_PASSES), precision=precision, pools_per_shard=POOLS_PER_SHARD)
    return job.model_dump_json()


def _one_thread(fields: str) -> float:
    """Passes over all pairs a second, in this process."""
    return NUM_PASSES / _seconds_of_shards(fields)


def _seconds_of_shards(fields: str, estimator: str | None = None) -> float:
    """Seconds in which one thread scores all shards, the model being loaded; by another estimator if one is given."""
    torch.set_num_threads(1)
    job, device = ColumnJob.model_validate_json(fields), torch.device("cpu")
    if estimator is not None:
        job = job.model_copy(update={"estimator": AbstractEstimator.Config.model_validate_json(estimator)})
    shards = job.shards()
    with tempfile.TemporaryDirectory() as folder:
        job.compute_shard(0, shards[0][:1], Path(folder), device)
        started = time.perf_counter()
        for number, rows in enumerate(shards):
            job.compute_shard(number, rows, Path(folder), device)
        return time.perf_counter() - started


def _through_ray(fields: str) -> float:
    """Passes over all pairs a second, by Ray tasks whose processes have loaded the model."""
    from icalib.core.events import ignore
    from icalib.distributed import session
    from icalib.distributed.executor import map_shards

    job = ColumnJob.model_validate_json(fields)
    warm_up = {
        "selection": Selection(labelled_fraction=1.0, limit={"train": 4 * num_cores()}),
        "pools_per_shard": 1,
        "estimator": MCDropout.Config(num_passes=2),
    }
    session.start()
    try:
        resources = session.available()
        with tempfile.TemporaryDirectory() as folder:
            map_shards(job.model_copy(update=warm_up), Path(folder), resources, "scores", ignore)
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            map_shards(job, Path(folder), resources, "scores", ignore)
            return NUM_PASSES / (time.perf_counter() - started)
    finally:
        session.stop()


def _sentence_transformers(pairs: Sequence[tuple[str, str]], threads: int, bf16: bool) -> float:
    """Pair-passes a second of predict in training mode."""
    from sentence_transformers import CrossEncoder

    torch.set_num_threads(threads)
    model = CrossEncoder(backbone_path(BACKBONE), num_labels=1, max_length=512, device="cpu")
    model.train()
    model.eval = lambda: model  # predict would turn dropout off
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
        model.predict(list(pairs[:WARM_UP]))
        started = time.perf_counter()
        for _ in range(NUM_PASSES):
            model.predict(list(pairs))
        return NUM_PASSES * len(pairs) / (time.perf_counter() - started)


if __name__ == "__main__":
    main()
