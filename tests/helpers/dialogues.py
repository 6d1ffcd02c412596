"""Token stores of dialogues whose words are numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from helpers.pool_folders import made_pool

from icalib.data.encoding import Budget, TokenStore, write_tokens


def number_store(folder: Path, pools: Mapping[str, Sequence[str]]) -> TokenStore:
    """Return the tokens of pools whose contexts are given by pool id; the part before a slash is the dialogue's id.

    The candidates are 98 and 99 in every pool.
    """
    made = [made_pool(["98", "99"], *texts, name=name) for name, texts in pools.items()]
    write_tokens(folder / "t.arrow", [made], lambda texts: [[int(w) for w in t.split()] for t in texts], (), Budget())
    return TokenStore(folder / "t.arrow")
