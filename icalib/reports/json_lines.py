"""The progress of runs as JSON lines on standard error, for programs that read logs."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self, TextIO, final

from icalib.core.events import Event, Message, Progress, event_line

_INTERVAL_S = 5.0


@final
class JsonLines:
    """Writes every event as one line, and the progress of a stage at most once in five seconds.

    Args:
        stream: where to write; None: standard error.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._last: dict[str, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def show(self, event: Event) -> None:
        """Write an event of a run."""
        if isinstance(event, Progress):
            now = time.monotonic()
            if now - self._last.get(event.stage, -_INTERVAL_S) < _INTERVAL_S:
                return
            self._last[event.stage] = now
        print(event_line(event), file=self._stream or sys.stderr, flush=True)

    def message(self, text: str) -> None:
        """Write one message."""
        self.show(Message(text))

    def advance(self, name: str, done: float, total: float | None, note: str = "") -> None:
        """Write a stage's progress."""
        self.show(Progress(name, done, total, note))
