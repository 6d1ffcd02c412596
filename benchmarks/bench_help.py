"""How long `icalib --help` takes."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from common import alternate, print_table

ROUNDS = 5
HELP = [str(Path(sys.executable).with_name("icalib")), "--help"]
NOTHING = [sys.executable, "-c", "pass"]


def main() -> None:
    """Ask for help in turn with an interpreter that does nothing."""
    seconds = alternate(
        {"icalib --help": lambda: _wall_time(HELP), "python that does nothing": lambda: _wall_time(NOTHING)}, ROUNDS
    )
    print_table("Start-up", "s", seconds, [])
    print(f"  best of {ROUNDS}: {min(seconds['icalib --help']):.2f} s   (goal < 0.5 s)")


def _wall_time(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
