"""Runs every benchmark, each in a process of its own. A figure means something beside its neighbours only: rates are
measured in turn and the ratios within a round count; on a busy machine they scatter by a tenth and more.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from common import num_cores

SCRIPTS = sorted(Path(__file__).parent.glob("bench_*.py"))


def main() -> int:
    """Run them all; the exit status is 1 if one failed."""
    print(f"{num_cores()} cores; median (least to greatest) of the rounds", flush=True)
    failed: list[str] = []
    for script in SCRIPTS:
        started = time.monotonic()
        if subprocess.run([sys.executable, script], check=False).returncode:
            failed.append(script.name)
        print(f"  [{script.stem}: {time.monotonic() - started:.0f} s]", flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
