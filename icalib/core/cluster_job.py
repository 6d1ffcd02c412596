"""A job as its cluster reports it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, final

JobState: TypeAlias = Literal["pending", "running", "succeeded", "failed", "stopped"]


@final
@dataclass(frozen=True)
class ClusterJob:
    """A submitted job; times are Unix times in seconds, `ended` and `exit_code` are None while it runs.

    `work` is the digest of what it computes, empty for a job that icalib did not submit; `message` explains the state.
    """

    id: str
    command: str
    work: str
    state: JobState
    started: float
    ended: float | None
    message: str
    exit_code: int | None

    @property
    def is_over(self) -> bool:
        """Whether its state is final."""
        return self.state in ("succeeded", "failed", "stopped")
