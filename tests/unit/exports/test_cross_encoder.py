"""The weights of an exported cross-encoder, and its files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.tiny_models import (
    attention_mask,
    pool_texts,
    random_batch,
    sharpened,
    tiny_ranker,
    word_pieces,
    write_backbone,
)
from transformers import MobileBertConfig, MobileBertModel

from icalib.calibration.fitted import AffineMap
from icalib.core.errors import SettingError
from icalib.encoders.spectral_norm import SpectralNorm
from icalib.exports.stock import CROSS_ENCODER_FILES, classifier_of, write_stock
from icalib.exports.texts import stock_tokenizer

CALIBRATION = AffineMap(slope=1.7, offset=-0.4)


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("bert", {}),
        ("bert", {"spectral_norm": SpectralNorm(scope="ffn+attention_output")}),
        ("bert", {"intents": ("ask", "thank"), "num_layers": 1}),
        ("roberta", {}),
    ],
)
@pytest.mark.parametrize("slope", [1.7, 200.0])  # a steep one must not be bent by the pooler's tanh
def test_the_classifiers_logit_is_the_calibrated_one(
    slope: float, family: str, settings: dict[str, Any], tiny_bert: Path, tiny_roberta: Path
) -> None:
    ranker = sharpened(tiny_ranker(tiny_bert if family == "bert" else tiny_roberta, **settings), 8)
    batch = random_batch(ranker)
    inputs = {"input_ids": batch.ids_BL, "attention_mask": attention_mask(batch)}
    if ranker.encoder.has_segments:
        inputs["token_type_ids"] = batch.segments_BL
    with torch.inference_mode():
        expected_B = slope * ranker.answer_logits(batch) - 0.4
        found_B = classifier_of(ranker, AffineMap(slope=slope, offset=-0.4))(**inputs).logits[:, 0]
    assert expected_B.std() > 0.3
    torch.testing.assert_close(found_B, expected_B, rtol=1e-5, atol=1e-5 * slope)


def test_the_files_are_those_that_sentence_transformers_writes(tiny_bert: Path, tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder

    ranker = sharpened(tiny_ranker(tiny_bert), 8)
    tokenizer = stock_tokenizer(str(tiny_bert), ranker.layout, has_segments=True)
    write_stock(tmp_path / "ours", classifier_of(ranker, CALIBRATION), tokenizer, CROSS_ENCODER_FILES)
    loaded = CrossEncoder(str(tmp_path / "ours"), device="cpu")
    assert loaded.tokenizer("a", "b")["token_type_ids"][-1] == 1
    loaded.save_pretrained(str(tmp_path / "theirs"))
    for name in ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"):
        ours, theirs = (json.loads((tmp_path / whose / name).read_text()) for whose in ("ours", "theirs"))
        theirs.pop("__version__", None) if isinstance(theirs, dict) else None
        assert ours == theirs, name
    config = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert list(config["id2label"]) == ["0"]


def test_a_classifier_of_another_kind_is_refused(tiny_pools: Path, tmp_path: Path) -> None:
    tokenizer, names = word_pieces(pool_texts(tiny_pools))
    size = {"hidden_size": 32, "intra_bottleneck_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = MobileBertConfig(vocab_size=tokenizer.get_vocab_size(), classifier_activation=False, **size)
    write_backbone(tmp_path, lambda: MobileBertModel(config), tokenizer, names)
    with pytest.raises(SettingError, match=r"family `mobilebert`.*--format onnx"):
        classifier_of(tiny_ranker(tmp_path), CALIBRATION)
