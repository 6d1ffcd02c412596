"""Token stores of dialogues whose words are numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from icalib.data.encoding import Budget, TokenStore, write_tokens
from icalib.data.schema import Pool


def number_store(folder: Path, pools: Mapping[str, Sequence[str]]) -> TokenStore:
    """Return the tokens of pools whose contexts are given by pool id; the part before a slash is the dialogue's id.

    The candidates are 98 and 99 in every pool.
    """
    made = [
        Pool.model_validate(
            {
                "pool_id": name,
                "dialog_id": name.partition("/")[0],
                "split": "train",
                "candidates": ["98", "99"],
                "label": 0,
                "context": [{"speaker": "user", "text": text} for text in texts],
            }
        )
        for name, texts in pools.items()
    ]
    write_tokens(folder / "t.arrow", [made], lambda texts: [[int(w) for w in t.split()] for t in texts], (), Budget())
    return TokenStore(folder / "t.arrow")
