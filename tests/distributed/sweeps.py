"""A small sweep by Ray Tune in a process of its own, to be killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from distributed.drivers import ON_RAY
from helpers.runs import run_context, small_settings
from helpers.sweeps import RULES, SHARDS, run_sweep, written_space

from icalib.distributed import session

SPACES = {"icast": ("rules", RULES), "bm25": ("shards", SHARDS)}


def start_sweep(runs: Path, pools: Path, backbone: Path, method: str = "icast") -> subprocess.Popen[bytes]:
    with (runs / "driver.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "distributed.sweeps", str(runs), str(pools), str(backbone), method],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _run(runs: Path, pools: Path, backbone: Path, method: str) -> None:
    from icalib.distributed.tune import run_by_tune  # imports ray, which must not come before the session starts

    space = written_space(runs, *SPACES[method])
    run_sweep(
        space, small_settings(method, pools, backbone), run_context(runs, executor=ON_RAY), run_by_tune, concurrent=2
    )


if __name__ == "__main__":
    session.start(num_cpus=2)
    _run(*map(Path, sys.argv[1:4]), method=sys.argv[4])
    session.stop()
