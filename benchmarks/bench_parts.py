"""What a pool costs by each part of the sum, without dropout and by passes; and what a sweep of thresholds takes, whose
trials share all that their thresholds don't change.
"""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path

import torch
from common import WORK, Ratio, alternate, first_pools, in_fresh_process, num_cores, pool_folder, print_table

NUM_POOLS = 60
NUM_PASSES = 5
ROUNDS = 3
TRIALS = 12
BRIEFLY = {"similarity.training.epochs": 1, "domain_pretraining": None}
ONE_ROUND = {"regime.num_rounds": 1, "regime.pools_per_round": 60}
LIMIT = {"train": 400, "validation": 40, "test": 40}


def main() -> None:
    """Train a teacher briefly, time its parts, then sweep."""
    import icalib

    teacher = icalib.run(
        "icast-teacher",
        pool_folder(),
        labelled=0.1,
        limit=LIMIT,
        settings={**BRIEFLY, "regime.training.epochs": 1},
        runs=WORK / "parts",
        executor="local",
    )
    # of the stages: a run keeps no checkpoint of a part without a weight
    stages = {stage["name"]: Path(stage["path"]) for stage in teacher.folder.stages}
    parts = ("similarity", "intent", "cross")
    figures = alternate(
        {
            f"{part}, {'1 pass' if passes is None else f'{passes} passes'}": partial(
                in_fresh_process, _milliseconds_per_pool, part, stages[f"teacher-{part}"] / "checkpoint", passes
            )
            for part in parts
            for passes in (None, NUM_PASSES)
            if (part, passes) != ("intent", NUM_PASSES)  # it has a posterior
        },
        ROUNDS,
    )
    ratios = [Ratio(f"cross, {passes}", f"similarity, {passes}") for passes in ("1 pass", f"{NUM_PASSES} passes")]
    print_table("Scoring a pool by each part, 1 thread; warm.", "ms", figures, ratios)
    in_fresh_process(_sweep)


def _milliseconds_per_pool(part: str, folder: Path, passes: int | None) -> float:
    from icalib.data.encoding import Budget, TokenStore, write_tokens
    from icalib.encoders.backbone import Tokenizer
    from icalib.parts.job import load_part
    from icalib.scoring.gain import AUTHORS_CHOICE
    from icalib.uncertainty.estimator import Deterministic, MCDropout

    torch.set_num_threads(1)
    estimator = Deterministic.Config() if passes is None else MCDropout.Config(num_passes=passes)
    loaded = load_part(part, folder, estimator, "auto", 8192, AUTHORS_CHOICE, torch.device("cpu"))
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / "pools.arrow"
        write_tokens(path, [first_pools(NUM_POOLS)], Tokenizer(str(folder / "backbone")), (), Budget())
        pools = list(TokenStore(path).pools(range(NUM_POOLS)))
    loaded.columns(pools[:2], 0, with_intents=False)
    started = time.perf_counter()
    loaded.columns(pools, 0, with_intents=False)
    return 1000 * (time.perf_counter() - started) / NUM_POOLS


def _sweep() -> None:
    import icalib

    def seconds(trials: int) -> float:
        started = time.perf_counter()
        icalib.sweep(
            "icast_tpe",
            pool_folder(),
            labelled=0.1,
            trials=trials,
            limit=LIMIT,
            preset="bi-encoder",
            settings={**BRIEFLY, **ONE_ROUND},
            runs=WORK / "parts",
            executor="local",
            fresh=trials == 1,
        )
        return time.perf_counter() - started

    first, all_trials = seconds(1), seconds(TRIALS)
    print(
        f"\nA sweep of {TRIALS} trials on shared columns, {num_cores()} cores: the first trial takes {first:.0f} s, "
        f"each further one {all_trials / (TRIALS - 1):.1f} s, the evaluation of the best included.",
        flush=True,
    )


if __name__ == "__main__":
    main()
