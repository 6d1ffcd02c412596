"""What happens in a run, as one stream of events: what computes calls one `emit`, what shows or records listens."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias


@dataclass(frozen=True)
class StageStarted:
    """A stage begins; if `reused`, its result is read from the cache."""

    stage: str
    reused: bool


@dataclass(frozen=True)
class Progress:
    """`done` of `total` units of a stage are done; `total` is None where it isn't known."""

    stage: str
    done: float
    total: float | None
    note: str = ""


@dataclass(frozen=True)
class EpochFinished:
    """The learning curve on validation of a training on answers so far, from epoch 0, the start, on.

    Emitted at the start, after each epoch and at the end; a consumer may raise `Abandoned` to end the training.
    """

    stage: str
    max_epochs: int
    points: Sequence[dict[str, Any]]


@dataclass(frozen=True)
class StageFinished:
    """A stage is complete."""

    stage: str
    label: str
    round: int
    digest: str
    path: Path
    seconds: float
    reused: bool


@dataclass(frozen=True)
class RunUpdated:
    """A run folder has something new to show."""

    path: Path


@dataclass(frozen=True)
class Message:
    """Anything else worth a line."""

    text: str


Event: TypeAlias = StageStarted | Progress | EpochFinished | StageFinished | RunUpdated | Message
Emit: TypeAlias = Callable[[Event], None]


def ignore(_event: Event) -> None:
    """An `Emit` without consumers."""


def broadcast(*consumers: Emit) -> Emit:
    """One `Emit` for several consumers, in order."""

    def emit(event: Event) -> None:
        for consumer in consumers:
            consumer(event)

    return emit


def event_line(event: Event) -> str:
    """Return an event as one JSON object with its time and its type's name."""
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    return json.dumps({"time": time, "event": type(event).__name__, **asdict(event)}, default=str, ensure_ascii=False)


class EventLog:
    """Appends events as JSON lines; progress within a stage is left out, since it says nothing afterwards."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, event: Event) -> None:
        """Write an event's line."""
        if isinstance(event, Progress | RunUpdated):
            return
        with self._path.open("a", encoding="utf-8") as file:
            file.write(event_line(event) + "\n")
