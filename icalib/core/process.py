"""What a process of icalib sets for itself, best before it imports torch, and how signals end it."""

from __future__ import annotations

import atexit
import gc
import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "10000"}
"""How threads wait for one another: a compromise. Two threads update MiniLM 0.82 (1,000 turns), 0.97 (10,000) and 1
(300,000, OpenMP's default) times as fast on an idle machine, and 0.59, 0.41 and 0.07 times beside one busy process."""

QUIET: ContextVar[bool] = ContextVar("quiet", default=False)
"""Whether progress is hidden: chosen once, by the command line."""

_NEW_OBJECTS = 10_000  # Python's own 700 are for programs that make few; updates of a training make no cycles


def usable_cores(quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Return the CPU cores that this process may use, which a scheduler, `taskset` or a container limits.

    `quota` is a container's file with the microseconds of computing in each period, or `max`, and the period.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        allowed, period = map(int, quota.read_text().split())
    except (OSError, ValueError):  # no container, or one without a limit
        return cores
    return max(1, min(cores, allowed // period))


def collect_rarely() -> None:
    """Let Python look for reference cycles more rarely, and not when it ends.

    Importing torch and transformers makes a million objects. Looking for cycles among them took an eighth of the time
    of a command that answers one question, and the last time, when everything ends anyway, a fifth.
    """
    gc.set_threshold(_NEW_OBJECTS)
    atexit.register(gc.freeze)


class Terminated(KeyboardInterrupt):
    """SIGTERM was received; like Ctrl-C, it unwinds the process, so that locks are released and Ray is shut down."""


@contextmanager
def on_stop(stop: Callable[[], None]) -> Generator[None, None, None]:
    """Call a function on SIGINT and SIGTERM, instead of what they did before; only in the main thread."""
    earlier = {
        number: signal.signal(number, lambda number, frame: stop()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
