"""Time and peak memory of every step while the pools grow tenfold: time should grow as they do, memory not at all.

    python benchmarks/scale.py                   # 10⁴ and 10⁵ training pools
    python benchmarks/scale.py 10000 300000      # any sizes, ascending

Each step runs in a process of its own, on one core, on a simulated corpus and a random BERT of two layers. An exponent
above 1, the slope of log time by log pools, is super-linear; other work on the machine hardly changes processor times.
"""

from __future__ import annotations

import re
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from common import in_fresh_process, made_here

if TYPE_CHECKING:
    from icalib.core.job import ShardedJob
    from icalib.data.selection import Selection
    from icalib.training.job import TrainingJob
    from icalib.training.settings import TrainingSettings

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))  # tests/helpers has the tiny BERT

SIZES = (10_000, 100_000)
NUM_CANDIDATES = 2
_POOLS_PER_DIALOGUE = 1.7 * 0.7  # responses of a simulated dialogue, and the fraction of dialogues in train


class Cost(NamedTuple):
    """What a step took: processor time in seconds, and the peak memory of its process in MiB."""

    seconds: float
    peak: float  # resident, pages of mapped files included, which the system takes back when it needs them
    own: float  # anonymous alone


def main() -> None:
    """Run every step at every size and print one table."""
    sizes = [int(word) for word in sys.argv[1:]] or list(SIZES)
    costs: dict[str, list[Cost]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            work = Path(folder) / str(size)
            work.mkdir()
            for name, step in STEPS.items():
                cost = in_fresh_process(_measured, step, work, size)
                costs.setdefault(name, []).append(cost)
                print(
                    f"  {size} pools, {name}: {cost.seconds:.1f} s, {cost.peak:.0f} MiB, {cost.own:.0f} of its own",
                    flush=True,
                )
    _print_table(sizes, costs)


def _print_table(sizes: list[int], costs: dict[str, list[Cost]]) -> None:
    growth = " to ".join(f"{size:,}" for size in sizes)
    print(f"\nFrom {growth} training pools: exponent of the processor time; peak memory, each against the size before")
    for name, found in costs.items():
        memory = "   ".join(
            f"{after.peak / before.peak:6.2f} x memory ({after.own / before.own:.2f} of its own)"
            for before, after in pairwise(found)
        )
        print(f"  {name:<18}time ~ pools^{_exponent(sizes, found):.2f}   {memory}")


def _exponent(sizes: list[int], costs: list[Cost]) -> float:
    """Return the least-squares slope of log time by log pools; NaN for one size."""
    import numpy as np

    if len(sizes) < 2:
        return float("nan")
    return float(np.polyfit(np.log(sizes), np.log([cost.seconds for cost in costs]), 1)[0])


def _measured(step: Callable[[Path, int], None], work: Path, size: int) -> Cost:
    import helpers.tiny_models  # noqa: F401  # imports take seconds, and are no part of a step
    import torch

    import icalib.data.prepare
    import icalib.pipeline.run  # noqa: F401

    torch.set_num_threads(1)
    before = time.process_time()
    with _own_memory() as own:
        step(work, size)
    return Cost(time.process_time() - before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, max(own))


@contextmanager
def _own_memory() -> Iterator[list[float]]:
    """Collect this process's anonymous memory in MiB, every 20 ms."""
    found, ended = [0.0], threading.Event()

    def sample() -> None:
        while not ended.wait(0.02):
            kib = re.search(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())
            found.append(int(kib[1]) / 1024 if kib else 0.0)

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield found
    finally:
        ended.set()
        sampler.join()


def _simulate(work: Path, size: int) -> None:
    from icalib.data.simulate import simulate

    simulate(work / "dialogues.jsonl", num_dialogues=round(1.02 * size / _POOLS_PER_DIALOGUE), seed=1)


def _prepare(work: Path, size: int) -> None:
    """Read, split, mine wrong candidates and write."""
    from icalib.data.prepare import PrepareSettings, prepare

    settings = PrepareSettings(num_candidates=NUM_CANDIDATES, labelled=0.01, limit=size)
    prepare(work / "dialogues.jsonl", work / "pools", settings)


def _tokenise(work: Path, size: int) -> None:
    from helpers.tiny_models import pool_texts, write_tiny_bert

    from icalib.data.encoding import Budget
    from icalib.data.pools import read_pool_set
    from icalib.stages.tokens import TokenizeJob

    words = work.parent / "bert"
    if not words.is_dir():
        write_tiny_bert(words, pool_texts(work / "pools"))
    numbers = read_pool_set(work / "pools").num_pools
    num_pools = {split: numbers[split] for split in ("train", "validation")}
    job = TokenizeJob(data=made_here(work / "pools"), backbone=str(words), budget=Budget(), num_pools=num_pools)
    _in_shards(job, work / "tokens")


def _train(work: Path, size: int) -> None:
    """Train the cross-encoder for an epoch on all pools, judged by a few of validation."""
    from helpers.tiny_models import ranker_config

    from icalib.losses.binary import BinaryCrossEntropy
    from icalib.training.cross_encoder import CrossEncoderJob

    job = CrossEncoderJob(
        ranker=ranker_config(work.parent / "bert"),
        loss=BinaryCrossEntropy.Config(),
        training=_epoch(),
        selection=_everything(),
        train_tokens=made_here(work / "tokens" / "train"),
        validation_tokens=made_here(work / "tokens" / "validation"),
        seed=1,
    )
    _trained(job, work / "cross")


def _train_similarity(work: Path, size: int) -> None:
    """Train the bi-encoder for an epoch on all pools, judged by a few of validation."""
    from icalib.data.encoding import Budget
    from icalib.parts.similarity import Similarity, SimilarityJob

    job = SimilarityJob(
        backbone=str(work.parent / "bert"),
        budget=Budget(),
        settings=Similarity(training=_epoch()),
        selection=_everything(),
        train_tokens=made_here(work / "tokens" / "train"),
        validation_tokens=made_here(work / "tokens" / "validation"),
        seed=1,
    )
    _trained(job, work / "similarity")


def _everything() -> Selection:
    from icalib.data.selection import Selection

    return Selection(labelled_fraction=1.0, limit={"validation": 100})


def _epoch() -> TrainingSettings:
    from icalib.training.settings import TrainingSettings

    return TrainingSettings(epochs=1, train_negatives=1, batch_size=64, precision="fp32", selection_metric="MAP")


def _trained(job: TrainingJob, folder: Path) -> None:
    import torch

    from icalib.core.events import ignore
    from icalib.stages.executor import LocalExecutor

    folder.mkdir()
    LocalExecutor(torch.device("cpu"), num_threads=1).train(job, folder, "training", ignore)


def _score(work: Path, size: int) -> None:
    _in_shards(_column_job("cross", work), work / "columns")


def _score_similarity(work: Path, size: int) -> None:
    _in_shards(_column_job("similarity", work), work / "similarity-columns")


def _column_job(part: str, work: Path) -> ShardedJob:
    from icalib.parts.job import ColumnJob
    from icalib.uncertainty.estimator import MCDropout

    return ColumnJob(
        part=part,
        model=made_here(work / part / "checkpoint"),
        tokens=made_here(work / "tokens" / "train"),
        selection=_everything(),
        split="train",
        of="all",
        estimator=MCDropout.Config(num_passes=2),
        with_intents=False,
        precision="fp32",
        max_tokens_per_batch=8192,
        pools_per_shard=500,
        seed=1,
    )


def _add(work: Path, size: int) -> None:
    from icalib.parts.sum import SumJob
    from icalib.uncertainty.estimator import MCDropout

    columns = {"cross": made_here(work / "columns")}
    _in_shards(SumJob(columns=columns, estimator=MCDropout.Config(num_passes=2)), work / "scores")


def _in_shards(job: ShardedJob, folder: Path) -> None:
    import torch

    folder.mkdir()
    for number, shard in enumerate(job.shards()):
        job.compute_shard(number, shard, folder, torch.device("cpu"))
    job.finish(folder)


def _pseudo_label(work: Path, size: int) -> None:
    from icalib.regimes.pseudo_labelling import PseudoLabelJob
    from icalib.regimes.pseudo_labels import PseudoLabelRule

    _in_shards(PseudoLabelJob(scores=made_here(work / "scores"), rule=PseudoLabelRule(), round=1), work / "pseudo")


def _evaluate(work: Path, size: int) -> None:
    """Choose views, make predictions, and compute all metrics with their intervals."""
    from icalib.pipeline.evaluation import Fitted, prediction_table
    from icalib.scoring.gain import GainRule
    from icalib.scoring.scores import Shards

    fitted = Fitted(rule=GainRule(), calibration=None, decision_threshold=0.5)
    fitted.summarise(prediction_table(Shards(work / "scores"), fitted), seed=1)


STEPS: dict[str, Callable[[Path, int], None]] = {
    "simulate": _simulate,
    "prepare": _prepare,
    "tokenise": _tokenise,
    "train cross": _train,
    "train similarity": _train_similarity,
    "score cross": _score,
    "score similarity": _score_similarity,
    "add": _add,
    "pseudo-label": _pseudo_label,
    "evaluate": _evaluate,
}


if __name__ == "__main__":
    main()
