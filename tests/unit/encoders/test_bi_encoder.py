from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.tiny_models import BUDGET

from icalib.data.encoding import Encoded, TokenPool
from icalib.encoders.transformer import TransformerEncoder
from icalib.models.checkpoint import save_ranker
from icalib.models.config import RankerConfig
from icalib.models.dual_encoder import pool_cosines
from icalib.models.ranker import Ranker, load_ranker, make_batch

CPU = torch.device("cpu")
INTENTS = ("asks", "thanks")


def made(backbone: Path) -> Ranker:
    encoder = TransformerEncoder.Config(backbone=str(backbone), budget=BUDGET)
    torch.manual_seed(0)
    return Ranker(RankerConfig(encoder=encoder, similarity_start="both", intents=INTENTS)).eval()


@pytest.fixture
def ranker(tiny_bert: Path) -> Ranker:
    return made(tiny_bert)


@pytest.fixture
def read(ranker: Ranker, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of texts in each pass of the bi-encoder."""
    assert ranker.bi_encoder is not None
    passes: list[int] = []
    inner = ranker.bi_encoder.encoder.token_states
    monkeypatch.setattr(
        ranker.bi_encoder.encoder, "token_states", lambda batch: passes.append(len(batch.ids_BL)) or inner(batch)
    )
    return passes


def pools() -> list[TokenPool]:
    rng = np.random.default_rng(1)

    def texts(*lengths: int) -> list[np.ndarray]:
        return [rng.integers(10, 90, n).astype(np.int32) for n in lengths]

    shapes = [((3, 5), (4, 9, 2)), ((7,), (1, 6, 6))]
    return [
        TokenPool(row, f"p{row}", f"d{row}", texts(*context), (), texts(*candidates), 0)
        for row, (context, candidates) in enumerate(shapes)
    ]


def inputs(ranker: Ranker, *, with_intents: bool = False) -> list[Encoded]:
    return [
        ranker.layout.pair(ranker.layout.context_ids(pool.context, [(0,), (1,)] if with_intents else None), candidate)
        for pool in pools()
        for candidate in pool.candidates
    ]


@pytest.mark.parametrize("name", ["tiny_bert", "tiny_roberta"])
def test_it_is_the_bi_encoder_of_the_table_whatever_the_padding_and_the_intents(
    name: str, request: pytest.FixtureRequest
) -> None:
    ranker = made(request.getfixturevalue(name))
    assert ranker.bi_encoder is not None
    plain = ranker.bi_encoder.encoder
    expected = np.concatenate(pool_cosines(plain, ranker.layout, pools()))
    for with_intents in (False, True):
        found = ranker.bi_encoder(make_batch(inputs(ranker, with_intents=with_intents), ranker.layout, CPU))
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)


def test_its_similarity_joins_that_of_the_states_read_together(ranker: Ranker) -> None:
    batch = make_batch(inputs(ranker), ranker.layout, CPU)
    assert ranker.bi_encoder is not None
    assert ranker.similarity_start is not None
    with torch.inference_mode():
        encoded = ranker.encoder(batch)
        head = ranker.answer_head(encoded.features_BD, torch.zeros_like(encoded.similarity_B))
        both = torch.stack([ranker.bi_encoder(batch), encoded.similarity_B], 1)
        expected = head + both @ ranker.similarity_start.slope + ranker.similarity_start.offset
        torch.testing.assert_close(ranker.answer_logits(batch), expected)


def test_remembered_pairs_are_looked_up_in_any_view_and_others_computed(ranker: Ranker, read: list[int]) -> None:
    bi_encoder = ranker.bi_encoder
    assert bi_encoder is not None
    pairs = inputs(ranker)
    batch = make_batch(pairs, ranker.layout, CPU)
    expected = bi_encoder(batch)
    assert torch.equal(bi_encoder(batch), expected)
    assert read == [2, 6]  # equal contexts are read once, and a batch too
    for some in (pairs[:3], pairs[3:5]):
        bi_encoder.remember(some, CPU)
    read.clear()
    bi_encoder.remember(pairs[:3], CPU)
    with_intents = make_batch(inputs(ranker, with_intents=True)[3:0:-1], ranker.layout, CPU)
    torch.testing.assert_close(bi_encoder(with_intents), expected[[3, 2, 1]])
    assert not read
    torch.testing.assert_close(bi_encoder(make_batch(pairs[4:], ranker.layout, CPU)), expected[4:])
    assert read == [1, 2]  # one of the two is new, and results may not depend on what is remembered
    bi_encoder.forget()
    read.clear()
    torch.testing.assert_close(bi_encoder(make_batch(pairs[:3], ranker.layout, CPU)), expected[:3])
    assert read == [1, 3]
    torch.testing.assert_close(bi_encoder(batch._replace(inputs=None)), expected)


def test_training_does_not_change_it(ranker: Ranker, tmp_path: Path) -> None:
    bi_encoder = ranker.train().bi_encoder
    assert bi_encoder is not None
    assert not any(module.training for module in bi_encoder.modules())
    before = {name: tensor.clone() for name, tensor in bi_encoder.state_dict().items()}
    batch = make_batch(inputs(ranker), ranker.layout, CPU)
    optimizer = torch.optim.AdamW([p for p in ranker.parameters() if p.requires_grad], lr=0.1)
    ranker.answer_logits(batch).sum().backward()
    optimizer.step()
    assert all(torch.equal(tensor, before[name]) for name, tensor in bi_encoder.state_dict().items())
    save_ranker(tmp_path, ranker.config, ranker.state_dict())
    loaded = load_ranker(tmp_path).eval()
    with torch.inference_mode():
        torch.testing.assert_close(loaded.answer_logits(batch), ranker.eval().answer_logits(batch))
