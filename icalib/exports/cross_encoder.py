"""A folder that stock `sentence_transformers.CrossEncoder(folder)` loads, without remote code."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from icalib.calibration.fitted import AffineMap
from icalib.core.errors import ExportError, SettingError
from icalib.encoders.backbone import load_config, quiet_transformers
from icalib.encoders.spectral_norm import SpectralLinear
from icalib.encoders.transformer import Batch
from icalib.models.ranker import Ranker

_SCALE = 2.0**-14
"""The pooler's tanh gets the logit times this: tanh(x) = x(1 − x²/3 + …), so |f| < 10 is kept to 2e-7 of itself."""
_TOLERANCE = 1e-5
_SENTENCE_TRANSFORMERS = "6.2.0"
"""The version whose files are written; it is also named where none is installed."""
_FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert")


def check_family(ranker: Ranker) -> None:
    """Refuse backbones whose classification model has no dense layer with tanh on [CLS].

    Raises:
        SettingError: the backbone is of another family.
    """
    family = ranker.encoder.backbone.config.model_type
    if family not in _FAMILIES:
        raise SettingError(
            f"the backbone is of the family `{family}`, and cross-encoders are written for {', '.join(_FAMILIES)}. "
            "Export with --format onnx."
        )


def classifier_of(ranker: Ranker, calibration: AffineMap) -> Any:
    """Return transformers' sequence classifier whose one logit is the ranker's, calibrated: a f + b.

    BERT's classifier has a dense layer with tanh on [CLS] before the linear one, which icalib's head has not. The dense
    layer's first unit computes the ranker's logit, scaled by a power of two so far down that tanh is the identity in
    float32, and the last layer scales it up again and calibrates it.

    Args:
        ranker: a plain transformer with a linear head and no similarity start.
        calibration: folded into the weights.
    """
    from transformers import AutoModelForSequenceClassification

    backbone = ranker.encoder.backbone
    config = load_config(ranker.config.encoder.backbone)
    config.num_hidden_layers = backbone.config.num_hidden_layers
    config.num_labels = 1
    config.dtype = torch.float32
    with quiet_transformers():
        model: Any = AutoModelForSequenceClassification.from_config(config)
    missing, unexpected = model.base_model.load_state_dict(plain_weights(backbone, config.vocab_size), strict=False)
    if unexpected or any(not name.startswith("pooler.") for name in missing):
        raise ExportError(
            f"the weights of {type(backbone).__name__} don't fit {type(model).__name__}: "
            f"{[*missing, *unexpected][0]}. Export with --format onnx."
        )
    dense, last = (
        (model.bert.pooler.dense, model.classifier)
        if config.model_type == "bert"
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
    return model.eval()


def check_logits(model: Any, ranker: Ranker, calibration: AffineMap) -> float:
    """Compare the classifier with the ranker on random tokens, and return the largest relative difference of logits.

    It is relative to slope · logit and offset, which may nearly cancel each other, and to 1 and the slope where these
    are larger.

    Raises:
        ExportError: they differ by more than 1e-5.
    """
    batch = random_batch(ranker)
    with torch.inference_mode():
        scaled_B = calibration.slope * ranker.answer_logits(batch)
        inputs = {"input_ids": batch.ids_BL, "attention_mask": attention_mask(batch)}
        if ranker.encoder.has_segments:
            inputs["token_type_ids"] = batch.segments_BL
        found_B = model(**inputs).logits[:, 0]
    size_B = scaled_B.abs() + abs(calibration.offset)
    difference_B = (found_B - scaled_B - calibration.offset).abs() / size_B.clamp(min=max(1, abs(calibration.slope)))
    difference = float(difference_B.max())
    if not difference <= _TOLERANCE:
        raise ExportError(
            f"the exported cross-encoder's logits differ from the ranker's by {difference:.1e} on random tokens; at "
            f"most {_TOLERANCE:g} was expected. Nothing was written. Export with --format onnx, and report this with "
            "the run's config.yaml."
        )
    return difference


def random_batch(ranker: Ranker, *, num_pairs: int = 8, seed: int = 0) -> Batch:
    """Return pairs of random tokens, of different lengths."""
    layout, generator = ranker.layout, torch.Generator().manual_seed(seed)

    def ids(most: int) -> Any:
        length = int(torch.randint(1, most + 1, (1,), generator=generator))
        return torch.randint(ranker.encoder.vocabulary, (length,), generator=generator).to(torch.int32).numpy()

    limits = layout.limits
    pairs = [layout.pair(ids(limits.max_context_tokens), ids(limits.max_candidate_tokens)) for _ in range(num_pairs)]
    return Batch.of(pairs, layout.padding)


def attention_mask(batch: Batch) -> torch.Tensor:
    """Return 1 for tokens and 0 for padding; [B, L]."""
    return (torch.arange(batch.ids_BL.shape[1]) < batch.lengths_B[:, None]).long()


def write_cross_encoder(folder: Path, model: Any, tokenizer: Any) -> None:
    """Write model, tokenizer and the files of sentence-transformers to an empty folder."""
    with quiet_transformers():
        model.save_pretrained(folder)
    write_tokenizer(folder, tokenizer)
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}
    ]
    transformer = {
        "transformer_task": "sequence-classification",
        "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
        "module_output_name": "scores",
    }
    cross_encoder = {
        "__version__": {
            "pytorch": version("torch"),
            "sentence_transformers": sentence_transformers_version(),
            "transformers": version("transformers"),
        },
        "activation_fn": "torch.nn.modules.activation.Sigmoid",
        "default_prompt_name": None,
        "model_type": "CrossEncoder",
        "prompts": {},
    }
    for name, value in (
        ("modules.json", modules),
        ("sentence_bert_config.json", transformer),
        ("config_sentence_transformers.json", cross_encoder),
    ):
        (folder / name).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def write_tokenizer(folder: Path, tokenizer: Any) -> None:
    """Write a tokenizer, without what transformers notes about this machine."""
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    for name in ("is_local", "local_files_only", "name_or_path"):
        settings.pop(name, None)
    path.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def sentence_transformers_version() -> str:
    """Return the installed version of sentence-transformers, or that whose files are written."""
    try:
        return version("sentence-transformers")
    except PackageNotFoundError:
        return _SENTENCE_TRANSFORMERS


def plain_weights(backbone: nn.Module, vocabulary: int) -> dict[str, torch.Tensor]:
    """Return a backbone's weights as an unchanged one has them: bounded layers as they act, and no intent tokens."""
    bounded = {name: module for name, module in backbone.named_modules() if isinstance(module, SpectralLinear)}
    buffers = {f"{name}.{buffer}" for name in bounded for buffer in ("u", "v", "initial_norm")}
    weights = {name: tensor for name, tensor in backbone.state_dict().items() if name not in buffers}
    with torch.no_grad():
        weights |= {f"{name}.weight": module.effective_weight() for name, module in bounded.items()}
    weights = {name: tensor.detach().clone() for name, tensor in weights.items()}
    words = "embeddings.word_embeddings.weight"
    weights[words] = weights[words][:vocabulary]
    return weights
