"""The weights of an exported cross-encoder, and its files."""

from __future__ import annotations

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
from icalib.exports.stock import classifier_of

CALIBRATION = AffineMap(slope=1.7, offset=-0.4)


@pytest.mark.parametrize(
    "settings",
    [{"spectral_norm": SpectralNorm(scope="ffn+attention_output")}, {"intents": ("ask", "thank"), "num_layers": 1}],
)
@pytest.mark.parametrize("slope", [1.7, 200.0])  # a steep one must not be bent by the pooler's tanh
def test_the_classifiers_logit_is_the_calibrated_one(slope: float, settings: dict[str, Any], tiny_bert: Path) -> None:
    ranker = sharpened(tiny_ranker(tiny_bert, **settings), 8)
    batch = random_batch(ranker)
    inputs = {"input_ids": batch.ids_BL, "attention_mask": attention_mask(batch), "token_type_ids": batch.segments_BL}
    with torch.inference_mode():
        expected_B = slope * ranker.answer_logits(batch) - 0.4
        found_B = classifier_of(ranker, AffineMap(slope=slope, offset=-0.4))(**inputs).logits[:, 0]
    assert expected_B.std() > 0.3
    torch.testing.assert_close(found_B, expected_B, rtol=1e-5, atol=1e-5 * slope)


def test_a_classifier_of_another_kind_is_refused(tiny_pools: Path, tmp_path: Path) -> None:
    tokenizer, names = word_pieces(pool_texts(tiny_pools))
    size = {"hidden_size": 32, "intra_bottleneck_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = MobileBertConfig(vocab_size=tokenizer.get_vocab_size(), classifier_activation=False, **size)
    write_backbone(tmp_path, lambda: MobileBertModel(config), tokenizer, names)
    with pytest.raises(SettingError, match=r"family `mobilebert`.*--format onnx"):
        classifier_of(tiny_ranker(tmp_path), CALIBRATION)
