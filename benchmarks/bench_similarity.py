"""Training of the similarity part beside sentence-transformers' bi-encoder: an epoch of the same labelled pools.

Processor time on one thread, after a warm-up; tokenising of our pools isn't counted.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from common import (
    BACKBONE,
    Ratio,
    alternate,
    first_pools,
    in_fresh_process,
    made_here,
    print_table,
    silently,
    write_token_files,
)

NUM_POOLS = 120
_WARM_UP = 8  # pools
ROUNDS = 3
PEER = "SentenceTransformer, in-batch negatives"
ALL, TWO = "similarity, all ten candidates of a pool", "similarity, train_negatives=2"


def main() -> None:
    """Train each for an epoch, in turn."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_token_files(folder, NUM_POOLS)
        figures = alternate(
            {
                PEER: partial(in_fresh_process, silently, _seconds_of_peer),
                ALL: partial(in_fresh_process, _seconds, folder, None),
                TWO: partial(in_fresh_process, _seconds, folder, 2),
            },
            ROUNDS,
        )
    ratios = [Ratio(ALL, PEER), Ratio(TWO, PEER), Ratio(TWO, ALL)]
    print_table(f"An epoch of {NUM_POOLS} pools, 1 thread.", "s", figures, ratios)


def _seconds(folder: Path, train_negatives: int | None) -> float:
    import torch

    from icalib.core.events import ignore
    from icalib.data.encoding import Budget
    from icalib.data.selection import Selection
    from icalib.parts.similarity import Similarity, SimilarityJob
    from icalib.stages.executor import LocalExecutor

    torch.set_num_threads(1)
    usual = Similarity()
    update = {"epochs": 1, "train_negatives": train_negatives}
    settings = usual.model_copy(update={"training": usual.training.model_copy(update=update)})

    def train(num_pools: int) -> None:
        job = SimilarityJob(
            backbone=BACKBONE,
            budget=Budget(),
            settings=settings,
            selection=Selection(labelled_fraction=1.0, limit={"train": num_pools, "validation": 2}),
            train_tokens=made_here(folder / "train.arrow"),
            validation_tokens=made_here(folder / "validation.arrow"),
            seed=1,
        )
        with tempfile.TemporaryDirectory() as out:
            LocalExecutor(torch.device("cpu"), num_threads=1).train(job, Path(out), "training", ignore)

    return _processor_time(train)


def _processor_time(train: Callable[[int], object]) -> float:
    train(_WARM_UP)
    started = time.process_time()
    train(NUM_POOLS)
    return time.process_time() - started


def _seconds_of_peer() -> float:
    import torch
    from peers import bi_encoder, right_pairs

    torch.set_num_threads(1)
    pairs = right_pairs(lambda: first_pools(NUM_POOLS))
    return _processor_time(lambda number: bi_encoder(BACKBONE, lambda: pairs[:number], 5e-5, 1, 1))


if __name__ == "__main__":
    main()
