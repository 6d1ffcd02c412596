from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.tiny_models import tiny_ranker

from icalib.core.errors import RunFolderError, SettingError
from icalib.core.files import read_json, write_json
from icalib.encoders.transformer import Batch
from icalib.models.checkpoint import CHECKPOINT_VERSION, save_ranker
from icalib.models.ranker import Ranker, load_ranker, make_batch, start_weights

CPU = torch.device("cpu")


def some_batch(ranker: Ranker) -> Batch:
    layout = ranker.layout
    context, candidate = np.arange(10, 30, dtype=np.int32), np.arange(60, 70, dtype=np.int32)
    return make_batch([layout.pair(context[:n], candidate[: n // 2]) for n in (4, 9, 20)], layout, CPU)


@pytest.mark.parametrize("name", ["tiny_bert", "tiny_roberta"])
def test_a_saved_ranker_loads_with_bit_identical_logits_wherever_it_lies(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    backbone = tmp_path / "backbone"
    shutil.copytree(request.getfixturevalue(name), backbone)
    ranker = tiny_ranker(backbone, intents=("a", "b"), num_layers=1, dropout=0.3)
    batch = some_batch(ranker)
    save_ranker(tmp_path / "checkpoint", ranker.config, ranker.state_dict())
    shutil.rmtree(backbone)  # a checkpoint needs nothing else
    (tmp_path / "checkpoint").rename(tmp_path / "moved")
    loaded = load_ranker(tmp_path / "moved").eval()
    with torch.inference_mode():
        assert torch.equal(loaded.answer_logits(batch), ranker.answer_logits(batch))
        assert torch.equal(loaded("intent", batch), ranker("intent", batch))
    assert loaded.layout == ranker.layout
    assert loaded.config.intents == ("a", "b")
    assert not [path for path in (tmp_path / "moved").rglob("*") if path.suffix in (".bin", ".pt", ".pkl")]


@pytest.fixture
def checkpoint(tiny_bert: Path, tmp_path: Path) -> Path:
    ranker = tiny_ranker(tiny_bert)
    save_ranker(tmp_path / "checkpoint", ranker.config, ranker.state_dict())
    return tmp_path / "checkpoint"


@pytest.mark.parametrize(
    ("file", "change", "error", "named"),
    [
        ("ranker.json", {"version": 99}, RunFolderError, f"version 99; this icalib reads {CHECKPOINT_VERSION}"),
        ("ranker.json", {"encoder": {"target": "icalib.encoders.transformer.No"}}, RunFolderError, "No.*--fresh"),
        ("ranker.json", {"intents": ["a"]}, RunFolderError, "don't fit"),
        ("backbone/config.json", {"num_attention_heads": 0}, SettingError, "can't load the backbone"),
    ],
)
def test_a_bad_field_is_refused_by_name_with_the_cure(
    checkpoint: Path, file: str, change: dict[str, object], error: type[Exception], named: str
) -> None:
    path = checkpoint / file
    write_json(path, {**read_json(path), **change})
    with pytest.raises(error, match=named):
        load_ranker(checkpoint)


def test_start_weights_fill_a_ranker_with_more_intent_tokens(tiny_bert: Path, tmp_path: Path) -> None:
    pretrained = tiny_ranker(tiny_bert, seed=5)
    with torch.no_grad():
        for parameter in pretrained.parameters():
            parameter.add_(0.01)
    save_ranker(tmp_path, pretrained.config, pretrained.state_dict())
    ranker = tiny_ranker(tiny_bert, intents=("a", "b"))
    new_intents = ranker.encoder.backbone.get_input_embeddings().weight[-2:].clone()
    start_weights(ranker, tmp_path)
    ranker_embeddings = ranker.encoder.backbone.get_input_embeddings().weight
    assert torch.equal(ranker_embeddings[:-2], pretrained.encoder.backbone.get_input_embeddings().weight)
    assert torch.equal(ranker_embeddings[-2:], new_intents)
    batch = some_batch(ranker)
    with torch.inference_mode():
        torch.testing.assert_close(ranker.answer_logits(batch), pretrained.answer_logits(batch))


def test_intents_are_read_at_the_last_separator(tiny_bert: Path) -> None:
    ranker = tiny_ranker(tiny_bert, intents=("a", "b", "c"))
    layout = ranker.layout
    questions = [layout.intent_question([np.arange(10, 10 + n, dtype=np.int32)], [], 0) for n in (3, 12)]
    batch = make_batch(questions, layout, CPU)
    assert ranker.intent_head is not None
    with torch.inference_mode():
        states = ranker.encoder(batch).states_BLD
        expected = torch.stack([ranker.intent_head(states[0, 4]), ranker.intent_head(states[1, 13])])
        torch.testing.assert_close(ranker("intent", batch), expected)
    assert batch.ids_BL[0, 4] == batch.ids_BL[1, 13] == layout.separator
