"""What GPUs do: the tests that need one, then scoring and training at the size of BERT-base, with random weights.

    make bench-gpu                                    # some minutes on one GPU
    python benchmarks/gpu.py --rehearse         # the same path without a GPU, tiny; its figures mean nothing

It prints, beside the goals: pairs a second of scoring, and the minutes that 1.3 million pairs would take (extrapolated
from the timed part; goal: 10 on one H200 with T = 10); the share of the matmul peak that was measured before; pairs a
second of training through Ray Train and DeepSpeed and by sentence-transformers, and with ZeRO 1, 2 and 3 on all GPUs
(on one, that they work); and of scoring tasks that share a GPU.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch
from common import ROOT, Ratio, alternate, in_fresh_process, print_table, product_rate, score_job, text_pairs, wait
from training_runs import ray_and_deepspeed, sentence_transformers, training_job

sys.path.append(str(ROOT / "tests"))  # tests/helpers makes the backbone

from helpers.tiny_models import pool_texts, token_store, write_tiny_bert

from icalib.core.events import ignore
from icalib.core.files import read_json
from icalib.data.encoding import Budget, TokenStore
from icalib.data.pools import as_pools, iter_pools
from icalib.data.prepare import PrepareSettings, prepare
from icalib.data.selection import Limit, Selection
from icalib.data.simulate import simulate
from icalib.encoders.transformer import TransformerEncoder
from icalib.models.checkpoint import RankerConfig, save_ranker
from icalib.models.ranker import Ranker
from icalib.parts.job import ColumnJob
from icalib.stages.composition import ScoringSettings
from icalib.stages.resources import Resources
from icalib.training.cross_encoder import CrossEncoderJob
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import AbstractEstimator, Deterministic, MCDropout

GOAL_PAIRS, GOAL_MINUTES, NUM_PASSES = 1_300_000, 10, 10
BUDGET = Budget(max_context_tokens=96, max_candidate_tokens=28)  # 127 tokens at most; the backbone has 128 positions
POOLS_PER_SHARD, MAX_TOKENS = 128, 65536
TASKS_PER_GPU = 4  # of those that share one
TRAINING_ROUNDS, TRAINING_POOLS = 3, 300
LIMIT: Limit = {"train": TRAINING_POOLS, "validation": 1}


class Size(NamedTuple):
    """The encoder, the pools, and the matrices of the measured peak."""

    layers: int
    width: int
    num_dialogues: int
    matrix: int


BERT_BASE, TINY = Size(12, 768, 600, 8192), Size(2, 32, 60, 256)


def main() -> int:
    """Run all parts; the exit status is that of the tests."""
    rehearse = "--rehearse" in sys.argv
    if not torch.cuda.is_available() and not rehearse:
        print("No GPU here (torch.cuda.is_available() is false), so there is nothing to measure; skipped.")
        return 0
    device, size = (torch.device("cpu"), TINY) if rehearse else (torch.device("cuda"), BERT_BASE)
    number = 1 if rehearse else torch.cuda.device_count()
    name = "a rehearsal on CPUs" if rehearse else f"{number} × {torch.cuda.get_device_name()}"
    print(f"{name}; {size.layers} layers of width {size.width}, random weights", flush=True)
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-m", "gpu", "-rs", str(ROOT / "tests" / "gpu")], check=False
    )
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        _write_inputs(work, size)
        peak = product_rate((size.matrix, size.matrix, size.matrix), torch.bfloat16, device.type, rounds=2, products=20)
        _score(work, size, device, peak)
        _train_beside_sentence_transformers(work)
        in_fresh_process(_train_with_zero, work, number)
        in_fresh_process(_share_gpus, work, number, rehearse)
    return tests.returncode


def _write_inputs(work: Path, size: Size) -> None:
    """Write pools, their tokens, a backbone and an untrained checkpoint."""
    simulate(work / "dialogues.jsonl", num_dialogues=size.num_dialogues, seed=1)
    prepare(work / "dialogues.jsonl", work / "pools", PrepareSettings(labelled=1.0))
    backbone = write_tiny_bert(
        work / "backbone",
        pool_texts(work / "pools"),
        hidden_size=size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=max(2, size.width // 64),
        intermediate_size=4 * size.width,
    )
    for split in ("train", "validation"):
        token_store(work / "pools", split, backbone, work, BUDGET)
    config = _ranker(work)
    save_ranker(work / "checkpoint", config, Ranker(config).state_dict())


def _ranker(work: Path) -> RankerConfig:
    encoder = TransformerEncoder.Config(backbone=str(work / "backbone"), budget=BUDGET)
    return RankerConfig(encoder=encoder)


def _score(work: Path, size: Size, device: torch.device, peak: float) -> None:
    store = TokenStore(work / "train.arrow")
    pools = list(store.pools(range(len(store))))
    layout = Ranker(_ranker(work), pretrained=False).layout
    lengths = [len(ids) for pool in pools for ids, _ in layout.inputs(pool.context, None, pool.candidates)]
    mean = sum(lengths) / len(lengths)
    # Products of a layer's weights with each token, and of its queries and keys, weights and values.
    per_pair = sum(size.layers * (24 * n * size.width**2 + 4 * n * n * size.width) for n in lengths) / len(lengths)
    print(f"\nScoring {len(lengths)} pairs of {mean:.0f} tokens in the mean; measured peak {peak / 1e12:.0f} TFLOP/s")
    dropout = MCDropout.Config(num_passes=NUM_PASSES)
    default = ScoringSettings().pools_per_shard
    ways: dict[str, tuple[AbstractEstimator.Config, int, int]] = {
        "1 pass without dropout": (Deterministic.Config(), 1, POOLS_PER_SHARD),
        f"{NUM_PASSES} passes": (dropout, NUM_PASSES, POOLS_PER_SHARD),
        f"{NUM_PASSES} passes, shards of {default} pools": (dropout, NUM_PASSES, default),
    }
    for name, (estimator, passes, pools_per_shard) in ways.items():
        job = score_job(work, estimator, pools_per_shard=pools_per_shard, max_tokens_per_batch=MAX_TOKENS)
        rate = len(lengths) / _seconds(job, device)
        minutes = GOAL_PAIRS / rate / 60
        goal = f" (goal: {GOAL_MINUTES} on an H200)" if passes == NUM_PASSES else ""
        print(
            f"  {name:<38}{rate:9.0f} pairs/s   {passes * per_pair * rate / peak:5.0%} of the peak   "
            f"{GOAL_PAIRS:,} pairs in {minutes:.1f} minutes{goal}",
            flush=True,
        )


def _seconds(job: ColumnJob, device: torch.device) -> float:
    """Seconds for all shards on one device, the model being loaded."""
    with tempfile.TemporaryDirectory() as folder:
        shards = job.shards()
        job.compute_shard(0, shards[0], Path(folder), device)
        wait(device.type)
        started = time.perf_counter()
        for index, shard in enumerate(shards):
            job.compute_shard(index, shard, Path(folder), device)
        wait(device.type)
        return time.perf_counter() - started


def _training_job(work: Path) -> CrossEncoderJob:
    selection = Selection(labelled_fraction=1.0, limit=LIMIT)
    return training_job(work, "bf16", _ranker(work)).model_copy(update={"selection": selection})


def _train_beside_sentence_transformers(work: Path) -> None:
    """Train the backbone in turn by both, in bf16 and batches of 16."""
    pools = (pool for rows in iter_pools(work / "pools", "train") for pool in as_pools(rows))
    pairs, labels = text_pairs(list(islice(pools, TRAINING_POOLS)))
    job = _training_job(work)
    ratio = Ratio("icalib", "sentence-transformers", "≥ 1.8")
    figures = alternate(
        {
            ratio.ours: lambda: ray_and_deepspeed(job),
            ratio.other: lambda: sentence_transformers(pairs, labels, bf16=True, backbone=str(work / "backbone")),
        },
        TRAINING_ROUNDS,
    )
    print_table(f"Training on {len(pairs)} pairs in batches of 16, one worker, bf16", "pairs/s", figures, [ratio])


def _train_with_zero(work: Path, number: int) -> None:
    """Train on all GPUs with each ZeRO stage."""
    from icalib.distributed import session
    from icalib.distributed.training import train

    session.start()
    print(f"\nTraining on {number} workers", flush=True)
    for stage in (1, 2, 3):
        training = TrainingSettings(epochs=1, batch_size=64 * number, max_tokens_per_batch=8192, zero_stage=stage)
        job = _training_job(work).model_copy(update={"training": training})
        folder = work / f"zero-{stage}"
        train(job, folder, session.available(number), "training", ignore)
        result = read_json(folder / "result.json")
        print(f"  ZeRO {stage}: {result['examples'] / result['seconds']:9.0f} pairs/s", flush=True)
    session.stop()


def _share_gpus(work: Path, number: int, rehearse: bool) -> None:
    """Score by one task for each GPU, and by some that share it, as trials of a sweep do."""
    from icalib.distributed import session
    from icalib.distributed.executor import map_shards

    job = score_job(work, MCDropout.Config(num_passes=NUM_PASSES), pools_per_shard=16, max_tokens_per_batch=MAX_TOKENS)
    store = TokenStore(work / "train.arrow")
    pairs = sum(len(pool.candidates) for pool in store.pools(range(len(store))))
    session.start()
    print("\nScoring by Ray tasks, processes and loading of models included", flush=True)
    for per_gpu in (1, TASKS_PER_GPU):
        resources = Resources(1, not rehearse, 1, num_scorers=per_gpu * number, workers_per_gpu=per_gpu)
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            map_shards(job, Path(folder), resources, "scores", ignore)
            rate = pairs / (time.perf_counter() - started)
        print(f"  {per_gpu} tasks at a time on each GPU: {rate:9.0f} pairs/s", flush=True)
    session.stop()


if __name__ == "__main__":
    sys.exit(main())
