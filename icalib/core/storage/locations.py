"""Locations and the local paths that stand for them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from icalib.core.errors import SettingError

CACHE = "ICALIB_CACHE"
"""Environment variable: the folder that holds this machine's mirror; default ~/.cache/icalib."""

_URI = re.compile(r"(?P<scheme>[a-z][a-z0-9.-]*(\+[a-z0-9.-]+)?)://(?P<authority>[^/]*)(?P<path>/.*)?", re.DOTALL)
_NO_AUTHORITY = "_"


def local_path(location: str | Path) -> Path:
    """Return the local path of a location: in the mirror for an object store's URI, itself for a path.

    A SettingError says that the URI has a query, a password, or parts such as `..`.
    """
    if isinstance(location, Path) or "://" not in location:
        return Path(location)
    match = _URI.fullmatch(location.rstrip("/"))
    parts = (match["path"] or "").split("/")[1:] if match else []
    if match is None or any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise SettingError(f"{location!r} is not a valid location. Write a path, or e.g. s3://bucket/folder.")
    if match["scheme"] == "file":
        return Path("/", *parts)
    if "?" in location or ":" in match["authority"].partition("@")[0]:
        raise SettingError(
            f"{_without_password(location)} has a query or a password, which would land in run folders. Set such "
            "things in the environment of every node: AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID and the like."
        )
    return mirrors().joinpath(match["scheme"], match["authority"] or _NO_AUTHORITY, *parts)


def location(path: Path) -> str:
    """Return what a local path stands for: an object store's URI, or the path itself."""
    parts = mirrored_parts(path)
    return uri(*parts) if parts else str(path)


def is_mirrored(path: Path) -> bool:
    """Return whether a path stands for a location in an object store."""
    return bool(mirrored_parts(path))


def cache_root() -> Path:
    """Return the folder of this machine's mirror and its locks."""
    return Path(os.environ.get(CACHE) or Path.home() / ".cache" / "icalib").resolve()


def mirrors() -> Path:
    """Return the folder that holds a mirror of each store."""
    return cache_root() / "stores"


def mirrored_parts(path: Path) -> tuple[str, ...]:
    """Return scheme, authority and names of a mirrored path; nothing for other paths."""
    folder = mirrors()
    absolute = Path(os.path.abspath(path))
    parts = absolute.relative_to(folder).parts if absolute.is_relative_to(folder) else ()
    return parts if len(parts) > 1 else ()


def uri(scheme: str, authority: str, *names: str) -> str:
    """Return the URI that the parts of a mirrored path spell."""
    return "/".join([f"{scheme}://{'' if authority == _NO_AUTHORITY else authority}", *names])


def _without_password(location: str) -> str:
    return re.sub(r"//[^/@]*@", "//…@", location.partition("?")[0])
