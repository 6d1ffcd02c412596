"""Interruption of this process from outside."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager


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
