"""Files of a folder that stock transformers and sentence-transformers load, without remote code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from icalib.core.errors import ExportError
from icalib.encoders.backbone import load_config, quiet_transformers
from icalib.encoders.spectral_norm import SpectralLinear


def stock_model(auto_class: Any, name: str, backbone: Any, **options: Any) -> Any:
    """Return a model of transformers with an encoder's weights, which began as those of `name`; an ExportError if none
    fit.
    """
    config = load_config(name)
    config.update({"num_hidden_layers": backbone.config.num_hidden_layers, "dtype": torch.float32, **options})
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
    words = "embeddings.word_embeddings.weight"
    return {**weights, words: weights[words][:vocabulary]}


def write_stock(folder: Path, model: Any, tokenizer: Any, files: Mapping[str, Any]) -> None:
    """Write a model, its tokenizer and JSON files to an empty folder."""
    with quiet_transformers():
        model.save_pretrained(folder)
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
        return auto_class.from_pretrained(folder, local_files_only=True)


def token_ids(encoded: Any) -> list[list[int]]:
    """Return the ids that a tokenizer gave each text, without padding."""
    mask_BL = encoded["attention_mask"].bool()
    return [row[kept].tolist() for row, kept in zip(encoded["input_ids"], mask_BL, strict=True)]
