"""What a server accepts: sizes of requests, and how many of them at a time.

The command line shows these defaults in its help, so this module imports nothing that takes time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from icalib.core.errors import SettingError

DRAIN_S = 30  # maximum time in which requests that have begun are answered when a server stops


@dataclass(frozen=True)
class Limits:
    """Limits of requests; larger ones are refused with a status of 413, 422 or 429."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}  # where they are read from a file

    max_body_bytes: int = 4 * 2**20  # maximum size of a request's body
    max_candidates: int = 1000  # maximum number of candidates in a request
    max_text_chars: int = 100_000  # maximum length of a text, of which the model reads `encoder.budget` tokens
    max_turns: int = 1000  # maximum number of utterances in a context, of which the run reads the last ones
    max_pending: int = 256  # maximum number of requests that wait for scores at a time
    body_timeout_s: float = 30.0  # maximum time between a request's headers and the end of its body

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise SettingError(f"`{name}` of a server is {value}; expected a number above 0.")


DEFAULT_LIMITS = Limits()
