"""Named child seeds of one root seed: every random draw is a function of (root seed, names)."""

from __future__ import annotations

import hashlib


def child_seed(root: int, *names: str | int) -> int:
    """Return a 63-bit seed that depends on the root seed and the names alone, on every machine."""
    key = "\x1f".join([str(root), *map(str, names)]).encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little") >> 1
