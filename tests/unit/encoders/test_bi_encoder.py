from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.tiny_models import BUDGET

from icalib.data.encoding import Encoded, TokenPool
from icalib.encoders.bi_encoder import BiEncoder
from icalib.encoders.transformer import TransformerEncoder
from icalib.models.checkpoint import save_ranker
from icalib.models.config import RankerConfig
from icalib.models.dual_encoder import pool_cosines
from icalib.models.ranker import Ranker, load_ranker, make_batch

CPU = torch.device("cpu")
INTENTS = ("asks", "thanks")


@pytest.fixture(params=["tiny_bert", "tiny_roberta"])
def ranker(request: pytest.FixtureRequest) -> Ranker:
    encoder = TransformerEncoder.Config(backbone=str(request.getfixturevalue(request.param)), budget=BUDGET)
    torch.manual_seed(0)
    return Ranker(RankerConfig(encoder=encoder, similarity_start="both", intents=INTENTS)).eval()


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


def test_it_is_the_bi_encoder_of_the_table_whatever_the_padding_and_the_intents(ranker: Ranker) -> None:
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
        together = ranker.encoder(batch).similarity_B
        head = ranker.answer_head(ranker.encoder(batch).features_BD, torch.zeros_like(together))
        separate, joint = ranker.similarity_start.slope
        expected = head + separate * ranker.bi_encoder(batch) + joint * together + ranker.similarity_start.offset
        torch.testing.assert_close(ranker.answer_logits(batch), expected)


def test_equal_contexts_are_read_once_and_a_batch_once(ranker: Ranker, monkeypatch: pytest.MonkeyPatch) -> None:
    bi_encoder = ranker.bi_encoder
    assert bi_encoder is not None
    read: list[int] = []
    inner = bi_encoder.encoder.token_states
    monkeypatch.setattr(
        bi_encoder.encoder, "token_states", lambda batch: read.append(len(batch.ids_BL)) or inner(batch)
    )
    batch = make_batch(inputs(ranker), ranker.layout, CPU)
    first = bi_encoder(batch)
    assert read == [2, 6]
    assert torch.equal(bi_encoder(batch), first)
    assert len(read) == 2


def test_remembered_pairs_are_looked_up_in_any_view_and_others_computed(
    ranker: Ranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    bi_encoder = ranker.bi_encoder
    assert bi_encoder is not None
    pairs = inputs(ranker)
    expected = bi_encoder(make_batch(pairs, ranker.layout, CPU))
    bi_encoder.remember(pairs[:3], CPU)
    bi_encoder.remember(pairs[3:5], CPU)
    read: list[int] = []
    inner = bi_encoder.encoder.token_states
    monkeypatch.setattr(
        bi_encoder.encoder, "token_states", lambda batch: read.append(len(batch.ids_BL)) or inner(batch)
    )
    bi_encoder.remember(pairs[:3], CPU)
    with_intents = make_batch(inputs(ranker, with_intents=True)[3:0:-1], ranker.layout, CPU)
    torch.testing.assert_close(bi_encoder(with_intents), expected[[3, 2, 1]])
    assert not read
    alone = make_batch(pairs[4:], ranker.layout, CPU)
    torch.testing.assert_close(bi_encoder(alone), expected[4:])
    assert read == [1, 2]  # one of the two is new, and results may not depend on what is remembered
    bi_encoder.forget()
    read.clear()
    torch.testing.assert_close(bi_encoder(make_batch(pairs[:3], ranker.layout, CPU)), expected[:3])
    assert read == [1, 3]
    without_inputs = make_batch(pairs, ranker.layout, CPU)._replace(inputs=None)
    torch.testing.assert_close(bi_encoder(without_inputs), expected)


def test_questions_about_intents_are_not_compared(ranker: Ranker, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ranker.bi_encoder is not None
    monkeypatch.setattr(ranker.bi_encoder, "forward", pytest.fail)
    pool = pools()[0]
    question = ranker.layout.intent_question(pool.context, [(0,), ()], 1)
    assert ranker("intent", make_batch([question], ranker.layout, CPU)).shape == (1, 2)


def test_training_does_not_change_it(ranker: Ranker, tmp_path: Path) -> None:
    ranker.train()
    bi_encoder = ranker.bi_encoder
    assert bi_encoder is not None
    assert not any(module.training for module in bi_encoder.modules())
    before = {name: tensor.clone() for name, tensor in bi_encoder.state_dict().items()}
    batch = make_batch(inputs(ranker), ranker.layout, CPU)
    learnt = [parameter for parameter in ranker.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learnt, lr=0.1)
    ranker.answer_logits(batch).sum().backward()
    optimizer.step()
    assert all(torch.equal(tensor, before[name]) for name, tensor in bi_encoder.state_dict().items())
    save_ranker(tmp_path, ranker.config, ranker.state_dict())
    loaded = load_ranker(tmp_path).eval()
    with torch.inference_mode():
        torch.testing.assert_close(loaded.answer_logits(batch), ranker.eval().answer_logits(batch))


@pytest.mark.parametrize(("switch", "meaning"), [(True, "together"), (False, "none")])
def test_the_switch_of_earlier_configurations_is_understood(switch: bool, meaning: str) -> None:
    assert RankerConfig.model_validate({"similarity_start": switch}).similarity_start == meaning


def test_it_has_all_layers_of_a_backbone_of_which_the_ranker_has_some(tiny_bert: Path) -> None:
    config = TransformerEncoder.Config(backbone=str(tiny_bert), budget=BUDGET, num_layers=1)
    assert BiEncoder(config).encoder.backbone.config.num_hidden_layers == 2
