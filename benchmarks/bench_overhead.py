"""What Ray Train and DeepSpeed cost: training pairs a second through them, and in the same loop without them.

On one thread the machine's other cores are left to Ray's own processes; on all cores they compete with the training.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from common import Ratio, alternate, num_cores, print_table, write_token_files
from training_runs import bare_loop, ray_and_deepspeed, training_job

NUM_POOLS = 30
ROUNDS = 3


def main() -> None:
    """Train in turn."""
    with tempfile.TemporaryDirectory() as folder:
        tokens = Path(folder)
        write_token_files(tokens, NUM_POOLS)
        job = training_job(tokens, "auto")
        contestants, ratios = {}, []
        for threads, goal in ((1, "≥ 0.95"), (num_cores(), "")):
            ours, bare = f"Ray Train + DeepSpeed, threads: {threads}", f"the same loop bare, threads: {threads}"
            contestants |= {ours: partial(ray_and_deepspeed, job, threads), bare: partial(bare_loop, job, threads)}
            ratios.append(Ratio(ours, bare, goal))
        figures = alternate(contestants, ROUNDS)
    title = "Training: one worker, default precision; the loop's time without start-up"
    print_table(title, "pairs/s", figures, ratios)


if __name__ == "__main__":
    main()
