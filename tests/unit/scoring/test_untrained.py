from __future__ import annotations

from pathlib import Path

import numpy as np
from helpers.pool_folders import made_pool, read_pools

from icalib.scoring.untrained import bm25_scores, likeness_scores


def test_bm25_likes_the_candidate_that_shares_rare_words(tiny_pools: Path) -> None:
    pool = made_pool(("reset the printer now", "the the the", "feed the cat now"), "the printer", "hums")
    others = read_pools(tiny_pools, "test")
    scores = bm25_scores([*others, pool])[-1]
    assert scores.argmax() == 0
    assert [len(s) for s in bm25_scores(others)] == [len(other.candidates) for other in others]


def test_candidates_only_likes_the_candidate_most_like_the_others_whatever_the_context() -> None:
    candidates = ("reset the printer", "feed the cat", "reset the router", "reset it")
    pools = [made_pool(candidates, text, name=text) for text in ("the cat", "a printer")]
    first, second = likeness_scores(pools)
    np.testing.assert_array_equal(first, second)
    assert first.argmax() in (0, 2)
    assert first.argmin() == 1
