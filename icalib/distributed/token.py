"""The token of Ray's clusters: anyone who can read it can run code as this user.

Ray creates ~/.ray/auth_token with the permissions that the umask leaves: other users of the machine can read it.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_FOR_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def protect_token(note: Callable[[str], None], *, create: bool) -> None:
    """Make the token in the home folder readable by this user only.

    Nothing is done where the environment names another token, or none is required.

    Args:
        note: receives a message about permissions that were too wide.
        create: create the token if it is missing, as Ray would when it starts a cluster.
    """
    named = any(os.environ.get(name) for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    if named or os.environ.get("RAY_AUTH_MODE", "token").lower() != "token":
        return
    path = Path.home() / ".ray" / "auth_token"
    try:
        if create and not path.exists():
            _create(path)
        for each, mode in ((path.parent, 0o700), (path, 0o600)):
            if each.exists() and (found := stat.S_IMODE(each.stat().st_mode)) & _FOR_OTHERS:
                each.chmod(mode)
                note(f"{each} was accessible to other users (mode {found:04o}); changed to {mode:04o}")
    except OSError as error:
        note(f"warning: can't restrict the access to {path} ({error}); other users may read the token of your clusters")


def _create(path: Path) -> None:
    """Create the token, whole or not at all; one that another process creates meanwhile is kept."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(file, "w") as stream:
            stream.write(secrets.token_hex(32))
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink()
