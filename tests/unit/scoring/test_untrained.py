from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from helpers.pool_folders import made_pool, read_pools
from helpers.tiny_models import tiny_ranker

from icalib.data.encoding import TokenStore
from icalib.encoders.transformer import Batch
from icalib.models.bi_encoder import pool_cosines
from icalib.scoring.untrained import bm25_scores, likeness_scores


def test_bm25_likes_the_candidate_that_shares_rare_words(tiny_pools: Path) -> None:
    pool = made_pool(("reset the printer now", "the the the", "feed the cat now"), "the printer", "hums")
    others = read_pools(tiny_pools, "test")
    scores = bm25_scores([*others, pool])[-1]
    assert scores.argmax() == 0
    assert [len(s) for s in bm25_scores(others)] == [len(other.candidates) for other in others]


def test_the_bi_encoder_is_the_cosine_of_mean_states_encoded_apart(store: TokenStore, tiny_bert: Path) -> None:
    ranker = tiny_ranker(tiny_bert)
    pools = list(store.pools([0, 5, 9]))

    def mean(ids: np.ndarray) -> torch.Tensor:
        whole = torch.tensor([[ranker.layout.cls, *ids.tolist(), ranker.layout.separator]])
        batch = Batch(whole, torch.zeros_like(whole), torch.tensor([whole.shape[1]]))
        with torch.inference_mode():
            return ranker.encoder(batch).states_BLD[0].mean(0)

    cosine_N = pool_cosines(ranker.encoder, ranker.layout, pools)
    for pool, scores in zip(
        pools, np.split(cosine_N, np.cumsum([len(pool.candidates) for pool in pools])[:-1]), strict=True
    ):
        context = mean(ranker.layout.context_ids(pool.context, None))
        expected = [torch.cosine_similarity(context, mean(ids), dim=0).item() for ids in pool.candidates]
        np.testing.assert_allclose(scores, expected, rtol=1e-4)


def test_candidates_only_likes_the_candidate_most_like_the_others_whatever_the_context() -> None:
    candidates = ("reset the printer", "feed the cat", "reset the router", "reset it")
    pools = [made_pool(candidates, text, name=text) for text in ("the cat", "a printer")]
    first, second = likeness_scores(pools)
    np.testing.assert_array_equal(first, second)
    assert first.argmax() in (0, 2)
    assert first.argmin() == 1
