"""How this process shows what it does: chosen once, by the command line, and read where something is shown."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Display:
    """How progress and tables are shown."""

    quiet: bool = False


_chosen: ContextVar[Display] = ContextVar("display", default=Display())  # noqa: B039  (it is frozen)


def display() -> Display:
    """Return how to show things."""
    return _chosen.get()


@contextmanager
def showing(chosen: Display) -> Generator[None, None, None]:
    """Show things this way within the block."""
    token = _chosen.set(chosen)
    try:
        yield
    finally:
        _chosen.reset(token)
