"""The weights of an exported cross-encoder, and its files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.tiny_models import tiny_ranker

from icalib.calibration.fitted import AffineMap
from icalib.core.errors import ExportError, SettingError
from icalib.encoders.spectral_norm import SpectralNorm
from icalib.exports.cross_encoder import check_family, check_logits, classifier_of, write_cross_encoder
from icalib.exports.texts import stock_tokenizer
from icalib.models.ranker import Ranker

CALIBRATION = AffineMap(slope=1.7, offset=-0.4)


def sensitive(backbone: Path, **settings: Any) -> Ranker:
    """A ranker whose logits differ by several units between texts, as those of trained ones do."""
    ranker = tiny_ranker(backbone, **settings)
    config = ranker.config.model_copy(update={"similarity_start": "none"})
    ranker = Ranker(config).eval()
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(1)
        for parameter in ranker.parameters():
            if parameter.ndim > 1:
                parameter.mul_(8)
        ranker.answer_head.linear.weight.normal_()
    return ranker


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("bert", {}),
        ("bert", {"spectral_norm": SpectralNorm(scope="ffn+attention_output")}),
        ("bert", {"intents": ("ask", "thank"), "num_layers": 1}),
        ("roberta", {}),
    ],
)
def test_the_classifiers_logit_is_the_calibrated_one(
    family: str, settings: dict[str, Any], tiny_bert: Path, tiny_roberta: Path
) -> None:
    ranker = sensitive(tiny_bert if family == "bert" else tiny_roberta, **settings)
    model = classifier_of(ranker, CALIBRATION)
    assert check_logits(model, ranker, CALIBRATION) < 1e-5
    with pytest.raises(ExportError, match="logits differ from the ranker's by"):
        check_logits(model, ranker, AffineMap(slope=1.0, offset=0.0))


def test_a_steep_calibration_does_not_bend_the_logits(tiny_bert: Path) -> None:
    ranker, steep = sensitive(tiny_bert), AffineMap(slope=200.0, offset=0.0)
    assert check_logits(classifier_of(ranker, steep), ranker, steep) < 1e-5


def test_differences_are_relative_to_terms_that_nearly_cancel(tiny_bert: Path) -> None:
    ranker, cancelling = sensitive(tiny_bert), AffineMap(slope=3000.0, offset=-3000.0)
    with torch.no_grad():
        ranker.answer_head.linear.weight.mul_(1e-4)
        ranker.answer_head.linear.bias.fill_(1)
        model = classifier_of(ranker, cancelling)
        model.classifier.bias += 1e-3
        assert check_logits(model, ranker, cancelling) < 1e-5
        model.classifier.bias += 1
        with pytest.raises(ExportError, match="logits differ from the ranker's by"):
            check_logits(model, ranker, cancelling)


def test_the_files_are_those_that_sentence_transformers_writes(tiny_bert: Path, tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder

    ranker = sensitive(tiny_bert)
    write_cross_encoder(
        tmp_path / "ours",
        classifier_of(ranker, CALIBRATION),
        stock_tokenizer(str(tiny_bert), ranker.layout, has_segments=True),
    )
    loaded = CrossEncoder(str(tmp_path / "ours"), device="cpu")
    assert loaded.tokenizer("a", "b")["token_type_ids"][-1] == 1
    loaded.save_pretrained(str(tmp_path / "theirs"))
    for name in ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"):
        ours, theirs = (json.loads((tmp_path / whose / name).read_text()) for whose in ("ours", "theirs"))
        assert ours == theirs, name
    config = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert list(config["id2label"]) == ["0"]


def test_another_family_is_refused(tiny_bert: Path) -> None:
    ranker = tiny_ranker(tiny_bert)
    ranker.encoder.backbone.config.model_type = "mpnet"
    with pytest.raises(SettingError, match=r"family `mpnet`.*--format onnx"):
        check_family(ranker)
