"""What happens in a run, as one stream of events: what computes calls one `emit`, what shows or records listens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
