"""Does `icalib label suspects` find wrong labels? In 5 % of the labelled pools another candidate is marked right.

    python benchmarks/label_suspects.py                                     # the simulated support desk
    python benchmarks/label_suspects.py sgd.jsonl.gz --negatives random     # a corpus

The method is `bert` with the similarity part alone, without domain pre-training. With k the number of planted errors,
it prints the precision at k, the recall at k and 2k, and how many labels look wrong and how many of those are planted.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

import icalib
from icalib.api.options import RunTemplate
from icalib.api.settings import run_settings
from icalib.data.pools import as_pools, iter_pools, read_pool_set
from icalib.data.simulate import simulate
from icalib.labelling.relabelled import Labels, write_relabelled
from icalib.labelling.suspects import Doubts, out_of_fold_predictions
from icalib.metrics.pairs import PoolScores
from icalib.pipeline.finished import FinishedRun
from icalib.pipeline.run import RunContext, run
from icalib.stages.executor import LocalExecutor

FRACTION = 0.05
POOLS = {"num_candidates": 5, "context_turns": 3, "labelled": 1.0, "limit": 2000, "executor": "local"}
SETTINGS = {"cross": False, "domain_pretraining": None, "similarity.training.train_negatives": 1}


def main() -> None:
    """Print a line for each seed and number of folds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", type=Path, help="dialogues; default: the simulated desk without noise")
    parser.add_argument(
        "--negatives", default="neighbourhood", help="wrong candidates of a corpus; the desk's are random"
    )
    parser.add_argument("--pools", type=int, default=300, help="labelled training pools")
    parser.add_argument("--evaluated", type=int, default=60, help="validation pools, and test pools")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--folds", type=int, nargs="+", default=[2])
    parser.add_argument("--epochs", type=int, default=2, help="0: the backbone as it was downloaded")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        clean = Path(folder) / "clean"
        if arguments.source is None:
            simulate(Path(folder) / "desk.jsonl", num_dialogues=1000, seed=1, label_noise=0.0)
            icalib.prepare(Path(folder) / "desk.jsonl", clean, negative_sampler="random", **POOLS)
        else:
            icalib.prepare(arguments.source, clean, negative_sampler=arguments.negatives, **POOLS)
        for seed in range(1, arguments.seeds + 1):
            measure(clean, Path(folder) / f"seed-{seed}", seed, arguments)


def measure(clean: Path, folder: Path, seed: int, arguments: argparse.Namespace) -> None:
    """Plant errors, run the method, and rank its labels."""
    planted = plant(clean, folder / "planted", arguments.pools, seed)
    limit = {"train": arguments.pools, "validation": arguments.evaluated, "test": arguments.evaluated}
    settings = {**SETTINGS, "similarity.training.epochs": arguments.epochs}
    template = RunTemplate(data=folder / "planted", labelled=1.0, limit=limit, settings=settings)
    context = RunContext(runs=(folder / "runs").resolve(), executor=LocalExecutor(num_threads=1))
    started = time.monotonic()
    finished = FinishedRun.open(run(run_settings("bert", template, seed), context).path)
    running, recall = time.monotonic() - started, finished.folder.result["test"]["R@1"]
    pool_set = read_pool_set(folder / "planted")
    for folds in arguments.folds:
        started = time.monotonic()
        scores = PoolScores.from_predictions(out_of_fold_predictions(finished, pool_set, folds, context))
        doubts = Doubts.of(scores)
        is_planted = np.isin(scores.pool_ids, list(planted))
        print(f"seed {seed}, {folds} folds: R@1 on test {recall:.3f}; run {running:.0f} s, ", end="")
        print(f"suspects {time.monotonic() - started:.0f} s; {figures(doubts, is_planted)}", flush=True)


def plant(clean: Path, out: Path, number: int, seed: int) -> set[str]:
    """Write pools with another right candidate in 5 % of the first `number` labelled ones, drawn; return their ids."""
    pool_set = read_pool_set(clean)
    labels = Labels(clean, pool_set)
    rng = np.random.default_rng(seed)
    chosen = set(rng.choice(labels.labelled[:number], round(FRACTION * number), replace=False).tolist())
    found: set[str] = set()
    pools = (pool for batch in iter_pools(clean, "train") for pool in as_pools(batch))
    for row, pool in enumerate(pools):
        if row in chosen:
            wrong = [index for index in range(len(pool.candidates)) if index not in pool.right]
            labels.set(row, (int(rng.choice(wrong)),), [])
            found.add(pool.pool_id)
    write_relabelled(out, clean, pool_set, labels, [])
    return found


def figures(doubts: Doubts, is_planted_B: npt.NDArray[np.bool_]) -> str:
    """Return what is found among the likeliest, and among the labels that look wrong."""
    hits_B = is_planted_B[np.argsort(-doubts.margin, kind="stable")]
    k = int(is_planted_B.sum())
    looks = doubts.looks_wrong
    return (
        f"{k} of {len(hits_B)} planted; precision and recall at k {hits_B[:k].mean():.3f}, recall at 2k "
        f"{hits_B[: 2 * k].sum() / k:.3f}; {looks.sum()} look wrong, {(looks & is_planted_B).sum()} of them planted"
    )


if __name__ == "__main__":
    main()
