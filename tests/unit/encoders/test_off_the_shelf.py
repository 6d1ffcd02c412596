"""Against sentence-transformers itself, on tiny models that it saves."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.stock_models import write_tiny_classifier
from safetensors.torch import load_file
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
from transformers import AutoConfig, AutoTokenizer, BertForSequenceClassification

from icalib.core.errors import SettingError
from icalib.data.encoding import Budget
from icalib.encoders.backbone import Tokenizer, load_config
from icalib.encoders.off_the_shelf import StockRanker, is_cross_encoder, model_digest, model_folder
from icalib.generation.language_model import LanguageModel

CPU = torch.device("cpu")
CONTEXTS = [["my printer hums", "since when?", "since today"], ["hello"], ["a very long question " * 40]]
CANDIDATES = [["restart it", "hello", "i will ask a colleague"], ["hello", "restart it"], ["yes " * 90, "no"]]


def queries() -> list[str]:
    return ["\n".join(context) for context in CONTEXTS]


@pytest.fixture(scope="module")
def classifier(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny sequence classifier with one label, as transformers saves it."""
    return write_tiny_classifier(tmp_path_factory.mktemp("classifier"), tiny_bert)


def expected_of(model: CrossEncoder) -> list[np.ndarray]:
    pairs = [(query, text) for query, pool in zip(queries(), CANDIDATES, strict=True) for text in pool]
    scores = model.predict(pairs, show_progress_bar=False, convert_to_numpy=True)
    return np.split(np.asarray(scores, np.float64), np.cumsum([len(pool) for pool in CANDIDATES])[:-1])


@pytest.mark.parametrize("activation", [None, torch.nn.Identity(), torch.nn.Tanh()])
def test_a_cross_encoder_scores_as_its_predict(
    classifier: Path, tmp_path: Path, activation: torch.nn.Module | None
) -> None:
    model = CrossEncoder(str(classifier), activation_fn=activation, device="cpu")
    model.save_pretrained(str(tmp_path))
    assert is_cross_encoder(str(tmp_path))
    found = StockRanker(str(tmp_path), CPU).scores(CONTEXTS, CANDIDATES)
    for scores, expected in zip(found, expected_of(model), strict=True):
        if activation is None:
            scores = torch.sigmoid(torch.tensor(scores)).numpy()
        assert scores == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("pooling", "normalised", "similarity"),
    [("mean", True, "cosine"), ("cls", False, "dot"), ("max", False, "cosine"), ("mean", True, "dot")],
)
def test_a_bi_encoder_scores_as_its_similarity(
    tiny_bert: Path, tmp_path: Path, pooling: str, normalised: bool, similarity: str
) -> None:
    transformer = Transformer(str(tiny_bert), max_seq_length=24)
    modules = [transformer, Pooling(transformer.get_embedding_dimension(), pooling_mode=pooling)]
    model = SentenceTransformer(
        modules=[*modules, *([Normalize()] if normalised else [])],
        similarity_fn_name=similarity,
        prompts={"query": "ask: ", "document": "answer: "},
        device="cpu",
    )
    model.save_pretrained(str(tmp_path))
    short = [[" ".join(context).split()[0]] for context in CONTEXTS]  # shorter than the limit: nothing is left out
    found = StockRanker(str(tmp_path), CPU).scores(short, CANDIDATES)
    for context, pool, scores in zip(short, CANDIDATES, found, strict=True):
        query, documents = model.encode_query(context), model.encode_document(pool)
        assert scores == pytest.approx(model.similarity(query, documents)[0].numpy(), abs=1e-5)


def test_the_oldest_utterances_are_left_out_first(classifier: Path) -> None:
    ranker = StockRanker(str(classifier), CPU)
    assert ranker.max_length == 128
    long = ["restart it " * 40, "my printer hums", "since today"]
    (found,) = ranker.scores([long], [["hello"]])
    (expected,) = ranker.scores([long[1:]], [["hello"]])
    assert found == pytest.approx(expected)


def test_positions_of_padding_are_not_for_tokens(tiny_roberta: Path, tmp_path: Path) -> None:
    ranker = StockRanker(str(write_tiny_classifier(tmp_path, tiny_roberta)), CPU)
    assert ranker.max_length == ranker._model.config.max_position_embeddings - 2
    (found,) = ranker.scores([["my printer hums " * 90]], [["yes " * 90]])  # longer than the limit
    assert np.isfinite(found).all()


def test_a_dense_layer_is_applied(tiny_bert: Path, tmp_path: Path) -> None:
    model = with_dense(tiny_bert)
    model.save_pretrained(str(tmp_path))
    (found,) = StockRanker(str(tmp_path), CPU).scores([["hello"]], [CANDIDATES[0]])
    assert found == pytest.approx(model.similarity(model.encode(["hello"]), model.encode(CANDIDATES[0]))[0], abs=1e-5)


def with_dense(backbone: Path) -> SentenceTransformer:
    """A bi-encoder with a linear layer after its pooling."""
    transformer = Transformer(str(backbone))
    width = transformer.get_embedding_dimension()
    return SentenceTransformer(modules=[transformer, Pooling(width), Dense(width, 8)], device="cpu")


def test_scores_do_not_depend_on_what_is_scored_beside_them(classifier: Path, tiny_bert: Path, tmp_path: Path) -> None:
    with_dense(tiny_bert).save_pretrained(str(tmp_path))
    for folder in (classifier, tmp_path):
        ranker = StockRanker(str(folder), CPU)
        together = ranker.scores(CONTEXTS, CANDIDATES)
        for context, pool, found in zip(CONTEXTS, CANDIDATES, together, strict=True):
            assert ranker.scores([context], [pool])[0] == pytest.approx(found, abs=1e-5)
        again = StockRanker(str(folder), CPU).scores(CONTEXTS, CANDIDATES)
        assert np.array_equal(np.concatenate(again), np.concatenate(together))


def test_what_is_not_implemented_is_refused(classifier: Path, tiny_bert: Path, tmp_path: Path) -> None:
    config = AutoConfig.from_pretrained(classifier, num_labels=3)
    BertForSequenceClassification(config).save_pretrained(tmp_path / "three")
    transformer = Transformer(str(tiny_bert))
    SentenceTransformer(modules=[transformer, Dense(32, 8)], device="cpu").save_pretrained(str(tmp_path / "unpooled"))
    for folder, found in {
        tiny_bert: "BertModel",
        tmp_path / "three": "3 labels",
        tmp_path / "unpooled": "Transformer, Dense",
    }.items():
        with pytest.raises(SettingError, match=found):
            is_cross_encoder(str(folder))


def copied(folder: Path, to: Path) -> Path:
    return Path(shutil.copytree(folder, to))


def test_a_model_that_contradicts_itself_is_refused(classifier: Path, tmp_path: Path) -> None:
    larger = copied(classifier, tmp_path / "larger")
    tokenizer = AutoTokenizer.from_pretrained(larger)
    tokenizer.add_tokens(["[ORDER]"])
    tokenizer.save_pretrained(larger)
    size = len(tokenizer)
    with pytest.raises(SettingError, match=f"its tokenizer has {size} tokens, and its model {size - 1}"):
        StockRanker(str(larger), CPU)
    with pytest.raises(SettingError, match=f"has {size} tokens, and its model only {size - 1} of them. Resize"):
        Tokenizer(str(larger)).layout(Budget(), 64, size - 1)
    short = copied(classifier, tmp_path / "short")
    config = json.loads((short / "tokenizer_config.json").read_text())
    (short / "tokenizer_config.json").write_text(json.dumps({**config, "model_max_length": 2}))
    with pytest.raises(SettingError, match="it reads 2 tokens; the minimum is 8"):
        StockRanker(str(short), CPU)
    wordless = copied(classifier, tmp_path / "wordless")
    for file in wordless.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(SettingError, match="its tokenizer has 5 tokens, and its model"):
        StockRanker(str(wordless), CPU)


def test_code_and_pickles_of_a_model_are_never_run(classifier: Path, tiny_bert: Path, tmp_path: Path) -> None:
    foreign = copied(classifier, tmp_path / "foreign")
    (foreign / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": "their.Evil"}]))
    with pytest.raises(SettingError, match=r"it needs the code of their\.Evil, which is not run"):
        is_cross_encoder(str(foreign))
    odd = copied(classifier, tmp_path / "odd")
    (odd / "config_sentence_transformers.json").write_text('{"activation_fn": "torch.hub.get_dir"}')
    with pytest.raises(SettingError, match=r"its activation torch\.hub\.get_dir is unknown"):
        is_cross_encoder(str(odd))
    with_dense(tiny_bert).save_pretrained(str(tmp_path / "dense"))
    for folder, part in ((classifier, ""), (tmp_path / "dense", ""), (tmp_path / "dense", "2_Dense")):
        pickled = copied(folder, tmp_path / f"{folder.name}-{part}-pickled")
        weights = pickled / part / "model.safetensors"
        torch.save(load_file(weights), weights.with_name("pytorch_model.bin"))
        weights.unlink()
        with pytest.raises(SettingError, match=r"can't be used.*model\.safetensors"):
            StockRanker(str(pickled), CPU)


def test_code_of_a_backbone_or_generator_is_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"model_type": "theirs", "auto_map": {"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil"}}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'trap')!r}, 'w')")
    monkeypatch.setattr("builtins.input", lambda prompt="": "y")  # transformers would ask
    with pytest.raises(SettingError, match=r"theirs|custom code|trust_remote_code"):
        load_config(str(tmp_path))
    with pytest.raises(SettingError, match=r"theirs|custom code|trust_remote_code"):
        LanguageModel.Config(model=str(tmp_path)).check()
    assert not (tmp_path / "trap").exists()


def test_a_hub_name_that_can_not_be_loaded_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(name: str, **options: object) -> str:
        raise OSError("no such model")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fails)
    with pytest.raises(SettingError, match=r"external:someone/other is not a folder.*no such model"):
        model_folder("someone/other")


def test_the_digest_follows_the_content(classifier: Path, tmp_path: Path) -> None:
    same = copied(classifier, tmp_path / "same")
    assert model_digest(str(same)) == model_digest(str(classifier))
    (same / "config_sentence_transformers.json").write_text('{"activation_fn": "torch.nn.modules.linear.Identity"}')
    assert model_digest(str(same)) != model_digest(str(classifier))
