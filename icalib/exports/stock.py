"""Folders that stock transformers and sentence-transformers load, without remote code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import normalize

from icalib.calibration.fitted import AffineMap
from icalib.core.errors import ExportError, SettingError
from icalib.data.schema import Pool
from icalib.encoders.architecture import set_num_layers
from icalib.encoders.backbone import Tokenizer, load_config, quiet_transformers, save_quietly
from icalib.encoders.spectral_norm import SpectralLinear
from icalib.exports.agreement import TOLERANCE, Comparison, Scorer, Scores, ranker_scorer
from icalib.exports.subject import Subject, composed
from icalib.exports.texts import PairTexts
from icalib.models.bi_encoder import BiEncoder
from icalib.models.ranker import Ranker
from icalib.scoring.untrained import token_pool

_SCALE = 2.0**-14
"""The classifier's dense layer gets the logit times this: tanh(x) = x(1 − x²/3 + …), so |f| < 10 is kept to 2e-7 of
itself."""
CROSS_ENCODER_FILES = {
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
    """Write the folder of a plain transformer with a linear head; see `classifier_of`."""
    calibration = composed(subject.affine, subject.of_part)
    write_stock(folder, classifier_of(subject.model, calibration), tokenizer, CROSS_ENCODER_FILES)
    tolerance = TOLERANCE * max(1, calibration.slope)
    return Comparison(_calibrated_scorer(subject), _written_cross_scorer(folder, texts), tolerance)


def classifier_of(ranker: Ranker, calibration: AffineMap) -> Any:
    """Return transformers' sequence classifier whose one logit is the ranker's, calibrated: a f + b.

    Classifiers have a dense layer with an activation φ on [CLS] before the linear one, which icalib's head has not. Two
    units of the dense layer compute ±s f, the ranker's logit scaled far down by a power of two, and the last layer
    calibrates φ(s f) − φ(−s f) = c f. The constant c is measured: it is 2s for tanh, s for GELU and ReLU. A third unit
    is constant and far larger, so that a layer norm behind φ (ModernBERT) divides by a constant, too.
    """
    from transformers import AutoModelForSequenceClassification

    backbone = ranker.encoder.backbone
    options = {"num_labels": 1, **_pooling(backbone.config)}
    model = stock_model(AutoModelForSequenceClassification, ranker.config.encoder.backbone, backbone, **options)
    dense, last = _classifier_layers(model, backbone)
    linear: nn.Linear = ranker.answer_head.linear
    with torch.no_grad():
        for parameter in (*dense.parameters(), *last.parameters()):
            parameter.zero_()
        dense.bias[:3] = torch.tensor([_SCALE, -_SCALE, 0.25])  # as if f = 1
        last.weight[0, :2] = torch.tensor([1.0, -1.0])
        slope_of_f = model(input_ids=torch.full((1, 2), ranker.layout.cls)).logits[0, 0]
        for unit, sign in enumerate((1, -1)):
            dense.weight[unit] = sign * _SCALE * linear.weight[0]
            dense.bias[unit] = sign * _SCALE * linear.bias[0]
            # Behind the activation, which would bend the logits of a steep slope.
            last.weight[0, unit] = sign * calibration.slope / slope_of_f
        last.bias[0] = calibration.offset
    return model


def _pooling(config: Any) -> dict[str, Any]:
    """Return the settings by which a classifier reads the state of [CLS], with a bias; BERT's has none."""
    if not hasattr(config, "classifier_pooling"):
        return {}
    return {"classifier_pooling": "bos" if config.model_type == "eurobert" else "cls", "classifier_bias": True}


def _classifier_layers(model: Any, backbone: nn.Module) -> tuple[nn.Linear, nn.Linear]:
    """Return the dense and the last layer of a classifier, which its encoder hasn't; SettingError if it has others."""
    own, prefix = {name for name, _ in backbone.named_modules()}, f"{model.base_model_prefix}."
    new = {name: module for name, module in model.named_modules() if name.removeprefix(prefix) not in own}
    found = [module for module in new.values() if isinstance(module, nn.Linear)]
    if [layer.out_features for layer in found] != [model.config.hidden_size, 1]:
        raise SettingError(
            f"the backbone is of the family `{model.config.model_type}`, whose classifier in transformers is not a "
            "dense layer and a last one. Export with --format onnx."
        )
    return found[0], found[1]


def _calibrated_scorer(subject: Subject[Ranker]) -> Scorer:
    uncalibrated, calibration = ranker_scorer(subject), subject.affine

    def score(pool: Pool) -> Scores:
        ids, outputs_CK = uncalibrated(pool)
        return Scores(ids, calibration.slope * outputs_CK[:, :1] + calibration.offset)

    return score


def _written_cross_scorer(folder: Path, texts: PairTexts) -> Scorer:
    """Score as stock CrossEncoders do."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model, tokenizer = read_stock(AutoModelForSequenceClassification, folder), read_stock(AutoTokenizer, folder)

    def score(pool: Pool) -> Scores:
        pairs = texts.of_pool(tokenizer, pool)
        encoded = tokenizer(*map(list, zip(*pairs, strict=True)), padding=True, truncation=True, return_tensors="pt")
        with torch.inference_mode():
            return Scores(token_ids(encoded), model(**encoded).logits.double().numpy())

    return score


_MODULES = "sentence_transformers.base.modules"
_POOLING = "sentence_transformers.sentence_transformer.modules.pooling.Pooling"
_SENTENCE_TRANSFORMER_FILES = {
    "modules.json": [
        {"idx": 0, "name": "0", "path": "", "type": f"{_MODULES}.transformer.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": _POOLING},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": f"{_MODULES}.normalize.Normalize"},
    ],
    "sentence_bert_config.json": {
        "transformer_task": "feature-extraction",
        "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
        "module_output_name": "token_embeddings",
    },
    "2_Normalize/config.json": {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"},
    "config_sentence_transformers.json": {
        "default_prompt_name": None,
        "model_type": "SentenceTransformer",
        "prompts": {"document": "", "query": ""},
        "similarity_fn_name": "cosine",
    },
}


def write_sentence_transformer(
    subject: Subject[BiEncoder], folder: Path, tokenizer: Any, texts: PairTexts
) -> Comparison:
    """Write the folder of a bi-encoder: mean pooling over all tokens, then the cosine."""
    from transformers import AutoModel

    bi_encoder = subject.model
    model = stock_model(AutoModel, bi_encoder.config.backbone, bi_encoder.encoder.backbone)
    pooling = {"embedding_dimension": model.config.hidden_size, "pooling_mode": "mean", "include_prompt": True}
    write_stock(folder, model, tokenizer, {**_SENTENCE_TRANSFORMER_FILES, "1_Pooling/config.json": pooling})
    return Comparison(
        _cosine_scorer(bi_encoder), _written_cosine_scorer(folder, texts), tolerance=1e-5
    )  # slopes of cosines are steep


def _cosine_scorer(bi_encoder: BiEncoder) -> Scorer:
    tokenize, layout = Tokenizer(bi_encoder.config.backbone), bi_encoder.layout

    def score(pool: Pool) -> Scores:
        tokens = token_pool(pool, tokenize, bi_encoder.config.budget)
        cosine_C = bi_encoder.pool_cosines([tokens])
        context = [layout.cls, *layout.context_ids(tokens.context, None).tolist(), layout.separator]
        ids = [[*context, layout.cls, *ids.tolist(), layout.separator] for ids in tokens.candidates]
        return Scores(ids, cosine_C[:, None])

    return score


def _written_cosine_scorer(folder: Path, texts: PairTexts) -> Scorer:
    from transformers import AutoModel, AutoTokenizer

    model, tokenizer = read_stock(AutoModel, folder), read_stock(AutoTokenizer, folder)

    def score(pool: Pool) -> Scores:
        pairs = texts.of_pool(tokenizer, pool)
        encoded = tokenizer(
            [pairs[0][0], *(candidate for _, candidate in pairs)], padding=True, truncation=True, return_tensors="pt"
        )
        with torch.inference_mode():
            states_BLD = model(**encoded).last_hidden_state
        units_BD = normalize((states_BLD * encoded["attention_mask"][..., None]).sum(1), dim=1).double()
        context, *candidates = token_ids(encoded)
        return Scores([[*context, *ids] for ids in candidates], (units_BD[1:] @ units_BD[:1].T).numpy())

    return score


def stock_model(auto_class: Any, name: str, backbone: Any, **options: Any) -> Any:
    """Return a model of transformers with an encoder's weights, which began as those of `name`."""
    config = load_config(name)
    set_num_layers(config, backbone.config.num_hidden_layers)
    config.update({"dtype": torch.float32, **options})
    with quiet_transformers():
        model: Any = auto_class.from_config(config)
    weights = _plain_weights(backbone, config.vocab_size)
    missing, unexpected = model.base_model.load_state_dict(weights, strict=False)
    if unexpected or any(not key.startswith("pooler.") for key in missing):
        raise ExportError(
            f"the weights of {type(backbone).__name__} don't fit {type(model).__name__}: "
            f"{[*missing, *unexpected][0]}. Export with --format onnx."
        )
    return model.eval()


def _plain_weights(backbone: nn.Module, vocabulary: int) -> dict[str, torch.Tensor]:
    """Return a backbone's weights as an unchanged one has them: bounded layers as they act, and no intent tokens."""
    bounded = {name: module for name, module in backbone.named_modules() if isinstance(module, SpectralLinear)}
    buffers = {f"{name}.{buffer}" for name in bounded for buffer in ("u", "v", "initial_norm")}
    weights = {name: tensor for name, tensor in backbone.state_dict().items() if name not in buffers}
    with torch.no_grad():
        weights |= {f"{name}.weight": module.effective_weight() for name, module in bounded.items()}
    embeddings: Any = backbone.get_input_embeddings()  # pyright: ignore[reportCallIssue]
    words = next(name for name, module in backbone.named_modules() if module is embeddings)
    return {**weights, f"{words}.weight": embeddings.weight[:vocabulary]}


def write_stock(folder: Path, model: Any, tokenizer: Any, files: Mapping[str, Any]) -> None:
    """Write a model, its tokenizer and JSON files to an empty folder."""
    save_quietly(model, folder)
    write_tokenizer(folder, tokenizer)
    for name, value in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def write_tokenizer(folder: Path, tokenizer: Any) -> None:
    """Write a tokenizer, without what transformers notes about this machine."""
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    for name in ("is_local", "local_files_only", "name_or_path"):
        settings.pop(name, None)
    path.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_stock(auto_class: Any, folder: Path) -> Any:
    """Return a model or tokenizer of transformers from a folder, without the network."""
    with quiet_transformers():
        return auto_class.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def token_ids(encoded: Any) -> list[list[int]]:
    """Return the ids that a tokenizer gave each text, without padding."""
    mask_BL = encoded["attention_mask"].bool()
    return [row[kept].tolist() for row, kept in zip(encoded["input_ids"], mask_BL, strict=True)]
