"""What Ray Train and DeepSpeed cost: training pairs a second through them, and in the same loop without them."""

from __future__ import annotations

import tempfile
from pathlib import Path

from common import Ratio, alternate, num_cores, print_table, write_token_files
from training_runs import bare_loop, ray_and_deepspeed, training_job

NUM_POOLS = 30
ROUNDS = 3
RAY, BARE = "icalib through Ray Train + DeepSpeed", "the same loop bare"


def main() -> None:
    """Train in turn."""
    with tempfile.TemporaryDirectory() as folder:
        tokens = Path(folder)
        write_token_files(tokens, NUM_POOLS)
        job = training_job(tokens, "auto")
        figures = alternate({RAY: lambda: ray_and_deepspeed(job), BARE: lambda: bare_loop(job)}, ROUNDS)
    title = f"Training: one worker, {num_cores()} threads, default precision; the loop's time without start-up"
    print_table(title, "pairs/s", figures, [Ratio(RAY, BARE, "≥ 0.95")])


if __name__ == "__main__":
    main()
