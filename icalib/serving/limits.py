"""What a server accepts: sizes of requests, and how many of them at a time."""

from __future__ import annotations

from pydantic import Field

from icalib.core.component import Settings

DRAIN_S = 30
"""Maximum time in which requests that have begun are answered when a server stops."""


class Limits(Settings):
    """Limits of requests; larger ones are refused with a status of 413, 422 or 429."""

    max_body_bytes: int = Field(default=4 * 2**20, ge=1)
    """Maximum size of a request's body."""
    max_candidates: int = Field(default=1000, ge=1)
    """Maximum number of candidates in a request."""
    max_text_chars: int = Field(default=100_000, ge=1)
    """Maximum length of a text; the model itself reads only as many tokens as the run's `encoder.budget` says."""
    max_turns: int = Field(default=1000, ge=1)
    """Maximum number of utterances in a context, of which the run reads the last ones."""
    max_pending: int = Field(default=256, ge=1)
    """Maximum number of requests that wait for scores at a time."""
    body_timeout_s: float = Field(default=30.0, gt=0)
    """Maximum time between a request's headers and the end of its body."""
