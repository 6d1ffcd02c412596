"""Scores of a cross-encoder alone, for tests."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from icalib.data.encoding import TokenStore
from icalib.scoring.cross import LoadedCross, score_token_pools


def score_pools(
    context: LoadedCross, store: TokenStore, rows: Sequence[int], *, with_intents: bool, seed: int
) -> tuple[pa.Table, pa.Table | None]:
    """Return the scores of some pools, and their predicted intents if there are two views."""
    return score_token_pools(context, list(store.pools(rows)), with_intents=with_intents, seed=seed)
