from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from helpers.artifacts import known
from helpers.pool_folders import made_pool, read_pools

from icalib.data.encoding import Budget
from icalib.data.selection import Selection
from icalib.encoders.backbone import Tokenizer
from icalib.encoders.transformer import TransformerEncoder
from icalib.scoring.scores import Shards
from icalib.scoring.untrained import BiEncoderScoreJob, bm25_scores, likeness_scores, token_pool


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
    (twins,) = likeness_scores([made_pool(("reset it", "reset it", "reset it"), "the cat", name="twins")])
    assert twins.tolist() == pytest.approx([1.0] * 3)  # the mean cosine with the others, of which there are two


def test_a_pool_in_memory_keeps_the_end_of_long_utterances_and_the_start_of_long_candidates(tiny_bert: Path) -> None:
    words, tokenizer = ("my card is lost", "reset the printer now"), Tokenizer(str(tiny_bert))
    pool = made_pool((words[1], "hello"), words[0])
    found = token_pool(pool, tokenizer, Budget(max_context_tokens=2, max_candidate_tokens=2))
    said, answer = tokenizer(list(words))
    assert found.context[0].tolist() == list(said[-2:])
    assert found.candidates[0].tolist() == list(answer[:2])


def test_a_bi_encoder_scores_in_shards_that_say_the_same_as_one(
    tiny_pools: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    found: list[pa.Table] = []
    for size in (3, 100):
        job = BiEncoderScoreJob(
            data=known(tiny_pools),
            split="test",
            selection=Selection(labelled_fraction=0.1),
            encoder=TransformerEncoder.Config(backbone=str(tiny_bert)),
            pools_per_shard=size,
        )
        folder = tmp_path / str(size)
        folder.mkdir()
        for index, shard in enumerate(job.shards()):
            job.compute_shard(index, shard, folder, torch.device("cpu"))
        tables = [scores for scores, _ in Shards(folder)]
        assert len(tables) == -(-len(read_pools(tiny_pools, "test")) // size)
        found.append(pa.concat_tables(tables))
    names = ["row", "pool_id", "candidate"]
    assert found[0].select(names).equals(found[1].select(names))
    np.testing.assert_allclose(found[0]["logit_mean"], found[1]["logit_mean"], atol=1e-5)
