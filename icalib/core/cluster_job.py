"""A job as its cluster reports it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, final

JobState: TypeAlias = Literal["pending", "running", "succeeded", "failed", "stopped"]


@final
@dataclass(frozen=True)
class ClusterJob:
    """A submitted job.

    Args:
        work: digest of what it computes; empty for a job that icalib did not submit.
        started, ended: Unix times in seconds; `ended` is None while it runs.
        message: the cluster's explanation of the state.
        exit_code: of its process; None while there is none.
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
