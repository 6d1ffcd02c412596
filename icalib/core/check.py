"""The result of a check of a machine or cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Check:
    """What was checked, what was found (one line), and what to do if the status isn't `ok`.

    `warn` is for what could be better, `fail` for what would stop a run.
    """

    name: str
    status: Status
    found: str
    cure: str = ""
