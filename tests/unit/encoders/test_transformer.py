from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.stores import Machines
from helpers.tiny_models import tiny_ranker

from icalib.core.errors import SettingError
from icalib.core.storage import location, push
from icalib.data.encoding import Budget
from icalib.encoders.backbone import Tokenizer, backbone_digest, load_config
from icalib.encoders.transformer import Batch
from icalib.models.ranker import make_batch

CPU = torch.device("cpu")


def test_features_are_the_first_state(tiny_bert: Path) -> None:
    ranker = tiny_ranker(tiny_bert)
    layout = ranker.layout
    short, long = (
        layout.pair(np.arange(10, 10 + n, dtype=np.int32), np.arange(90, 93, dtype=np.int32)) for n in (4, 9)
    )
    with torch.inference_mode():
        encoded = ranker.encoder(make_batch([short, long], layout, CPU))
    assert torch.equal(encoded.features_BD, encoded.states_BLD[:, 0])


def test_roberta_uses_every_position_but_its_two_reserved_and_has_no_segments(
    tiny_bert: Path, tiny_roberta: Path
) -> None:
    ranker = tiny_ranker(tiny_roberta)
    assert (ranker.encoder.max_length, ranker.encoder.has_segments) == (128, False)
    longest = Batch(torch.full((1, 128), 50), torch.zeros(1, 128, dtype=torch.long), torch.tensor([128]))
    with torch.inference_mode():
        assert ranker.encoder(longest).states_BLD.shape == (1, 128, 32)
    assert tiny_ranker(tiny_bert).encoder.has_segments


def test_the_digest_of_a_backbone_follows_its_files(tiny_bert: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(tiny_bert, copy)
    assert backbone_digest(str(copy)) == backbone_digest(str(tiny_bert))
    (copy / "tokenizer_config.json").write_text("{}")
    assert backbone_digest(str(copy)) != backbone_digest(str(tiny_bert))


def test_a_backbone_may_be_in_an_object_store(tiny_bert: Path, machines: Machines, tmp_path: Path) -> None:
    shutil.copytree(tiny_bert, machines.on("a", "bert"))
    push(machines.on("a", "bert"))
    uri = location(machines.on("b", "bert"))
    assert backbone_digest(uri) == backbone_digest(str(tiny_bert))
    assert Tokenizer(uri)(["it hums"]) == Tokenizer(str(tiny_bert))(["it hums"])
    for nowhere in (f"{machines.uri}/none", str(tmp_path)):
        with pytest.raises(SettingError, match="can't load the backbone"):
            load_config(nowhere)


def test_special_tokens_typed_by_a_user_are_text_and_long_texts_are_tokenised_whole(tiny_bert: Path) -> None:
    tokenizer = Tokenizer("minilm")
    (ids,) = tokenizer(["press [SEP] and [CLS] now"])
    layout = tokenizer.layout(Budget(), 512, 30522)
    assert not {layout.separator, layout.cls} & set(ids)
    assert len(Tokenizer(str(tiny_bert))(["printer " * 300])[0]) >= 300


def test_a_tokenizer_without_the_tokens_of_a_layout_is_refused(tiny_bert: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(tiny_bert, tmp_path / "copy"))
    settings = json.loads((copy / "tokenizer_config.json").read_text())
    (copy / "tokenizer_config.json").write_text(json.dumps({**settings, "sep_token": None}))
    with pytest.raises(SettingError, match=r"has no sep_token or eos_token\. Name one"):
        Tokenizer(str(copy))


def test_bounds_and_layers_that_are_computed_again_exclude_each_other(tiny_bert: Path) -> None:
    with pytest.raises(SettingError, match="has bounds"):
        tiny_ranker(tiny_bert, spectral_norm={"scope": "ffn"}).encoder.recompute_layers()
