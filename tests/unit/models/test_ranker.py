from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.tiny_models import ranker_config, tiny_ranker

from icalib.core.errors import RunFolderError, SettingError
from icalib.core.files import read_json, write_json
from icalib.encoders.transformer import Batch
from icalib.models.checkpoint import CHECKPOINT_VERSION, load_ranker_config, save_ranker
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


def test_the_masked_word_head_is_not_saved(tiny_bert: Path, tmp_path: Path) -> None:
    ranker = Ranker(ranker_config(tiny_bert), masked_words=True)
    save_ranker(tmp_path, ranker.config, ranker.state_dict())
    assert load_ranker(tmp_path).masked_word_head is None


def test_questions_are_asked_of_the_state_of_cls(tiny_bert: Path) -> None:
    ranker = Ranker(ranker_config(tiny_bert), masked_words=True, task_heads={"one": 3, "other": 2}).eval()
    batch = some_batch(ranker)
    positions_N2 = torch.tensor([[0, 1], [1, 2]])
    with torch.inference_mode():
        encoded = ranker.encoder(batch)
        for name, head in ranker.task_heads.items():
            torch.testing.assert_close(ranker("classify", batch, head=name), head(encoded.states_BLD[:, 0]))
        torch.testing.assert_close(ranker("classify", batch, head="answer"), ranker.answer_logits(batch))
        logits, words = ranker("classify", batch, head="one", positions_N2=positions_N2)
        torch.testing.assert_close(logits, ranker("classify", batch, head="one"))
    assert words.shape == (2, ranker.encoder.vocabulary)


def test_after_questions_the_checkpoint_holds_the_encoder_alone(tiny_bert: Path, tmp_path: Path) -> None:
    asked = Ranker(ranker_config(tiny_bert), masked_words=True, task_heads={"one": 3})
    with torch.no_grad():
        for parameter in asked.parameters():
            parameter.add_(0.01)
    asked.save(tmp_path, asked.state_dict())
    ranker = tiny_ranker(tiny_bert)
    before = {name: tensor.clone() for name, tensor in ranker.state_dict().items()}
    start_weights(ranker, tmp_path)
    for name, tensor in ranker.state_dict().items():
        expected = asked.state_dict()[name] if name.startswith("encoder.") else before[name]
        assert torch.equal(tensor, expected), name


def saved(tiny_bert: Path, folder: Path) -> Path:
    ranker = tiny_ranker(tiny_bert)
    save_ranker(folder, ranker.config, ranker.state_dict())
    return folder


def test_another_version_is_refused(tiny_bert: Path, tmp_path: Path) -> None:
    folder = saved(tiny_bert, tmp_path)
    write_json(folder / "ranker.json", {**read_json(folder / "ranker.json"), "version": 99})
    with pytest.raises(RunFolderError, match=f"version 99; this icalib reads {CHECKPOINT_VERSION}"):
        load_ranker(folder)


@pytest.mark.parametrize("text", ["{", "[1, 2]", "7", None])
def test_a_folder_without_a_readable_ranker_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "ranker.json").write_text(text)
    with pytest.raises(RunFolderError, match=str(tmp_path)):
        load_ranker_config(tmp_path)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"similarity_start": "perhaps"}, "similarity_start"),
        ({"temperature": 2}, "temperature"),
        ({"encoder": []}, "encoder"),
        ({"encoder": {"target": "icalib.encoders.transformer.Nothing"}}, "Nothing"),
    ],
)
def test_a_bad_field_is_refused_by_file_and_name_with_the_cure(
    tiny_bert: Path, tmp_path: Path, change: dict[str, object], named: str
) -> None:
    path = saved(tiny_bert, tmp_path) / "ranker.json"
    write_json(path, {**read_json(path), **change})
    with pytest.raises(RunFolderError, match=rf"{path}.*{named}.*--fresh"):
        load_ranker_config(tmp_path)


@pytest.mark.parametrize("damage", ["cut", "garbage", "missing"])
def test_damaged_weights_are_refused_with_the_cure(tiny_bert: Path, tmp_path: Path, damage: str) -> None:
    weights = saved(tiny_bert, tmp_path) / "model.safetensors"
    content = weights.read_bytes()
    weights.unlink()
    if damage != "missing":
        weights.write_bytes(content[:-100] if damage == "cut" else b"\x80\x04" + content[2:])
    with pytest.raises(RunFolderError, match=r"can't be read.*run the command again"):
        load_ranker(tmp_path)


def test_weights_of_another_shape_are_refused(tiny_bert: Path, tmp_path: Path) -> None:
    folder = saved(tiny_bert, tmp_path)
    write_json(folder / "ranker.json", {**read_json(folder / "ranker.json"), "intents": ["a"]})
    with pytest.raises(RunFolderError, match=r"don't fit"):
        load_ranker(folder)


@pytest.mark.parametrize("change", [{"num_attention_heads": 5}, {"hidden_act": "nowhere"}, {"num_attention_heads": 0}])
def test_a_damaged_config_of_the_backbone_is_refused(
    tiny_bert: Path, tmp_path: Path, change: dict[str, object]
) -> None:
    path = saved(tiny_bert, tmp_path) / "backbone" / "config.json"
    write_json(path, {**read_json(path), **change})
    with pytest.raises(SettingError, match="can't load the backbone"):
        load_ranker(tmp_path)


def test_start_weights_fill_a_ranker_with_more_intent_tokens(tiny_bert: Path, tmp_path: Path) -> None:
    post_trained = tiny_ranker(tiny_bert, seed=5)
    with torch.no_grad():
        for parameter in post_trained.parameters():
            parameter.add_(0.01)
    save_ranker(tmp_path, post_trained.config, post_trained.state_dict())
    ranker = tiny_ranker(tiny_bert, intents=("a", "b"))
    new_intents = ranker.encoder.backbone.get_input_embeddings().weight[-2:].clone()
    start_weights(ranker, tmp_path)
    ranker_embeddings = ranker.encoder.backbone.get_input_embeddings().weight
    assert torch.equal(ranker_embeddings[:-2], post_trained.encoder.backbone.get_input_embeddings().weight)
    assert torch.equal(ranker_embeddings[-2:], new_intents)
    batch = some_batch(ranker)
    with torch.inference_mode():
        torch.testing.assert_close(ranker.answer_logits(batch), post_trained.answer_logits(batch))


def test_a_ranker_starts_from_the_similarity_unless_told_not_to(tiny_bert: Path) -> None:
    config = ranker_config(tiny_bert)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        plain = Ranker(config.model_copy(update={"similarity_start": "none"})).eval()
    started = tiny_ranker(tiny_bert)
    start_state = started.state_dict()
    plain.load_state_dict({name: start_state[name] for name in plain.state_dict()})
    batch = some_batch(started)
    with torch.inference_mode():
        similarity = started.encoder(batch).similarity_B
        torch.testing.assert_close(started.answer_logits(batch), plain.answer_logits(batch) + 5 * similarity - 3)


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


def test_masked_words_start_from_the_word_embeddings(tiny_bert: Path) -> None:
    ranker = Ranker(ranker_config(tiny_bert), masked_words=True).eval()
    assert ranker.masked_word_head is not None
    states = ranker.encoder.backbone.get_input_embeddings().weight[10:13]
    logits = ranker.masked_word_head(states, ranker.encoder.backbone.get_input_embeddings().weight)
    assert logits.shape == (3, ranker.encoder.vocabulary)
