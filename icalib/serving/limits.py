"""What a server accepts: sizes of requests, and how many of them at a time.

The command line shows these defaults in its help, so this module imports nothing that takes time.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from icalib.core.errors import SettingError
from icalib.core.hosts import is_loopback

DRAIN_S = 30  # maximum time in which requests that have begun are answered when a server stops


@dataclass(frozen=True)
class Limits:
    """Limits of requests; larger ones are refused with a status of 413, 422 or 429."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}  # where they are read from a file

    max_body_bytes: int = 4 * 2**20  # maximum size of a request's body
    max_candidates: int = 1000  # maximum number of candidates in a request
    max_turns: int = 1000  # maximum number of utterances in a context, of which the run reads the last ones
    max_pending: int = 256  # maximum number of requests that are sent or wait for scores at a time
    body_timeout_s: float = 30.0  # maximum time between a request's headers and the end of its body

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise SettingError(f"`{name}` of a server is {value}; expected a number above 0.")


DEFAULT_LIMITS = Limits()


_TOKEN = re.compile(r"[!-~]{16,}")
_MAKE_ONE = '(umask 077; python -c "import secrets; print(secrets.token_hex(32))" > token)'


def read_token(path: Path | None, host: str, note: Callable[[str], None]) -> str | None:
    """Return the token that clients must send; None where none is required, on loopback.

    `note` receives a warning if others can read the file; a SettingError if it can't be read, is missing or not valid.
    """
    if path is None:
        if is_loopback(host):
            return None
        raise SettingError(
            f"--host {host} lets other machines ask without a token. Make one with {_MAKE_ONE} and pass it as "
            "--token-file token, or leave --host out."
        )
    try:
        token, mode = path.read_text().strip(), stat.S_IMODE(path.stat().st_mode)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"--token-file {path} can't be read ({error}). Make one with {_MAKE_ONE}.") from error
    if not _TOKEN.fullmatch(token):
        raise SettingError(
            f"--token-file {path} has no valid token. Expected 16 or more visible ASCII characters without spaces; "
            f"make one with {_MAKE_ONE}."
        )
    if mode & (stat.S_IRGRP | stat.S_IROTH):
        note(f"warning: {path} is readable by other users (mode {mode:04o}); change it with chmod 600 {path}")
    return token
