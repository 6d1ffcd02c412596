from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from helpers.stores import Machines
from helpers.tiny_models import tiny_ranker

from icalib.core.errors import SettingError
from icalib.core.storage import location, push
from icalib.data.encoding import Budget
from icalib.encoders.backbone import Tokenizer, backbone_digest, load_config, load_tokenizer


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


def test_a_folder_without_a_vocabulary_is_refused(tiny_bert: Path, tmp_path: Path) -> None:
    """Of which transformers makes a tokenizer that knows no word."""
    folder = shutil.copytree(tiny_bert, tmp_path / "bare")
    for name in ("tokenizer.json", "vocab.txt", "tokenizer_config.json", "special_tokens_map.json"):
        (folder / name).unlink(missing_ok=True)
    with pytest.raises(SettingError, match=r"bare`.*no vocabulary, as tokenizer.json"):
        load_tokenizer(str(folder))
