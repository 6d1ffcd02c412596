"""Who may ask: the bearer token, and which addresses need none."""

from __future__ import annotations

import ipaddress
import re
import stat
from collections.abc import Callable
from pathlib import Path

from icalib.core.errors import SettingError

_TOKEN = re.compile(r"[!-~]{16,}")
_MAKE_ONE = '(umask 077; python -c "import secrets; print(secrets.token_hex(32))" > token)'


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


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
