"""A folder that stock `sentence_transformers.CrossEncoder(folder)` loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from icalib.calibration.fitted import AffineMap
from icalib.core.errors import SettingError
from icalib.data.schema import Pool
from icalib.exports.agreement import Comparison, Scorer, Scores, ranker_scorer
from icalib.exports.stock import read_stock, stock_model, token_ids, write_stock
from icalib.exports.subject import Subject
from icalib.exports.texts import PairTexts
from icalib.models.ranker import Ranker

_SCALE = 2.0**-14
"""The pooler's tanh gets the logit times this: tanh(x) = x(1 − x²/3 + …), so |f| < 10 is kept to 2e-7 of itself."""
_FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert")
FILES = {
    "modules.json": [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}
    ],
    "sentence_bert_config.json": {
        "transformer_task": "sequence-classification",
        "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
        "module_output_name": "scores",
    },
    "config_sentence_transformers.json": {
        "activation_fn": "torch.nn.modules.activation.Sigmoid",
        "default_prompt_name": None,
        "model_type": "CrossEncoder",
        "prompts": {},
    },
}


def write_cross_encoder(subject: Subject[Ranker], folder: Path, tokenizer: Any, texts: PairTexts) -> Comparison:
    """Write the folder of a plain transformer with a linear head and no similarity start; see `classifier_of`."""
    write_stock(folder, classifier_of(subject.model, subject.affine), tokenizer, FILES)
    return Comparison(_scorer(subject), _written_scorer(folder, texts), tolerance=1e-4 * max(1, subject.affine.slope))


def classifier_of(ranker: Ranker, calibration: AffineMap) -> Any:
    """Return transformers' sequence classifier whose one logit is the ranker's, calibrated: a f + b.

    BERT's classifier has a dense layer with tanh on [CLS] before the linear one, which icalib's head has not. The dense
    layer's first unit computes the ranker's logit, scaled so far down by a power of two that tanh is the identity in
    float32, and the last layer scales it up again and calibrates it.
    """
    from transformers import AutoModelForSequenceClassification

    backbone = ranker.encoder.backbone
    family = backbone.config.model_type
    if family not in _FAMILIES:
        raise SettingError(
            f"the backbone is of the family `{family}`, and cross-encoders are written for {', '.join(_FAMILIES)}. "
            "Export with --format onnx."
        )
    model = stock_model(AutoModelForSequenceClassification, ranker.config.encoder.backbone, backbone, num_labels=1)
    dense, last = (
        (model.bert.pooler.dense, model.classifier)
        if family == "bert"
        else (model.classifier.dense, model.classifier.out_proj)
    )
    linear: nn.Linear = ranker.answer_head.linear
    with torch.no_grad():
        for parameter in (*dense.parameters(), *last.parameters()):
            parameter.zero_()
        dense.weight[0] = _SCALE * linear.weight[0]
        dense.bias[0] = _SCALE * linear.bias[0]
        last.weight[0, 0] = calibration.slope / _SCALE  # behind tanh, which would bend the logits of a steep slope
        last.bias[0] = calibration.offset
    return model


def _scorer(subject: Subject[Ranker]) -> Scorer:
    uncalibrated, calibration = ranker_scorer(subject), subject.affine

    def score(pool: Pool) -> Scores:
        ids, outputs_CK = uncalibrated(pool)
        return Scores(ids, calibration.slope * outputs_CK[:, :1] + calibration.offset)

    return score


def _written_scorer(folder: Path, texts: PairTexts) -> Scorer:
    """Score as stock CrossEncoders do."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model, tokenizer = read_stock(AutoModelForSequenceClassification, folder), read_stock(AutoTokenizer, folder)

    def score(pool: Pool) -> Scores:
        pairs = texts.of_pool(tokenizer, pool)
        encoded = tokenizer(*map(list, zip(*pairs, strict=True)), padding=True, truncation=True, return_tensors="pt")
        with torch.inference_mode():
            return Scores(token_ids(encoded), model(**encoded).logits.double().numpy())

    return score
