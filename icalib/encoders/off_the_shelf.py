"""Stock rerankers as sentence-transformers saves them: cross-encoders with one label, and bi-encoders.

A folder's own settings are followed; weights are read from safetensors only, and no code of a model is ever run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor, nn

from icalib.core.component import Settings, Stored, validated
from icalib.core.errors import SettingError
from icalib.core.files import content_digest, file_digest, read_json, read_json_list
from icalib.core.text import shortened
from icalib.data.batching import ordered_batches
from icalib.encoders.architecture import max_length
from icalib.encoders.backbone import EMBEDDED, backbone_path, loading, pretrained

Floats = npt.NDArray[np.float64]
Pooling = Literal["mean", "cls", "max"]

_FILES = ("*.json", "*.safetensors", "*.txt", "*.model")
_LEGACY_POOLING: Mapping[str, str] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
}
_DOCUMENT_PROMPTS = ("document", "passage", "corpus")
_MONOTONE = ("Sigmoid", "Identity")
_QUERY_SHARE = 0.75  # of the maximum length: older utterances are left out before a candidate is cut
_MAX_BATCH, _MAX_TOKENS = 256, 8192
_EXPECTED = (
    "Expected a folder or hub name of a sentence-transformers cross-encoder with one label, or of a bi-encoder of "
    "Transformer, Pooling and Normalize"
)


class StockModel(Settings):
    """What a model's folder says about how it scores."""

    folder: Stored
    transformer: Stored
    """Folder of weights and tokenizer."""
    kind: Literal["cross-encoder", "bi-encoder"]
    max_length: int | None = Field(default=None, ge=8)
    lower_case: bool = False
    activation: str = "Sigmoid"
    """Class of torch.nn that a cross-encoder applies to its logit."""
    pooling: Pooling = "mean"
    similarity: Literal["cosine", "dot"] = "cosine"
    normalised: bool = False
    query_prompt: str = ""
    document_prompt: str = ""


def model_folder(name: str) -> Path:
    """Return the folder of a model: itself, the embedded one, or a download from the hub (without code or pickles)."""
    folder = Path(backbone_path(name))
    return folder if name == EMBEDDED or folder.is_dir() else _downloaded(name)


@cache
def _downloaded(name: str) -> Path:
    """Download a model once in a process: workers ask for its digest with each shard."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=list(_FILES), ignore_patterns=["onnx/*", "openvino/*"]))
    except Exception as error:  # of many classes: no such model, no network, no access
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise SettingError(
            f"external:{shortened(name)} is not a folder, and can't be read from the hub: {reason} {_EXPECTED}."
        ) from error


def model_digest(name: str) -> str:
    """Return a digest of a model's weights, settings and tokenizer."""
    folder = model_folder(name)
    files = sorted({path for pattern in _FILES for path in folder.rglob(pattern) if path.is_file()})
    return content_digest({path.relative_to(folder).as_posix(): file_digest(path) for path in files})


def read_stock_model(name: str) -> StockModel:
    """Read a model's settings."""
    folder = model_folder(name)
    listed = read_json_list(folder / "modules.json") if (folder / "modules.json").is_file() else []
    types = [str(module.get("type", "")) for module in listed]
    if foreign := [one for one in types if not one.startswith("sentence_transformers.")]:
        raise _unusable(name, f"it needs the code of {foreign[0]}, which is not run")
    names = [one.rpartition(".")[2] for one in types]
    transformer = folder / str(listed[0].get("path", "")) if listed else folder
    if not (transformer / "config.json").is_file():
        raise _unusable(name, f"{transformer} has no config.json")
    config = read_json(transformer / "config.json")
    own = _optional(folder / "config_sentence_transformers.json")
    settings = _optional(transformer / "sentence_bert_config.json")
    common: dict[str, Any] = {
        "folder": folder,
        "transformer": transformer,
        "max_length": settings.get("max_seq_length"),
        "lower_case": bool(settings.get("do_lower_case", False)),
    }
    architecture = str((config.get("architectures") or [""])[0])
    if names in ([], ["Transformer"]) and architecture.endswith("ForSequenceClassification"):
        return _cross_encoder(name, common, config, own)
    if names in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        pooling = _optional(folder / str(listed[1].get("path", "")) / "config.json")
        return _bi_encoder(name, common, own, pooling, normalised=len(names) == 3)
    raise _unusable(name, f"its modules are {', '.join(names) or 'not listed'} and its architecture {architecture}")


def _cross_encoder(
    name: str, common: Mapping[str, Any], config: Mapping[str, Any], own: Mapping[str, Any]
) -> StockModel:
    labels = config.get("id2label")
    count = len(labels) if isinstance(labels, dict) else 2  # pyright: ignore[reportUnknownArgumentType]
    if count != 1:
        raise _unusable(name, f"it has {count} labels, and a reranker has one")
    if _prompt(own, own.get("default_prompt_name")):
        raise _unusable(name, "it has a prompt, which is not implemented for cross-encoders")
    nested: Any = config.get("sentence_transformers") or {}
    path = own.get("activation_fn") or nested.get("activation_fn") or config.get("sbert_ce_default_activation_function")
    activation = str(path).rpartition(".")[2] if path and str(path).startswith("torch.") else "Sigmoid"
    known: Any = getattr(nn, activation, None)
    if not (isinstance(known, type) and issubclass(known, nn.Module)):
        raise _unusable(name, f"its activation {path} is unknown")
    return _stock(name, {**common, "kind": "cross-encoder", "activation": activation})


def _bi_encoder(
    name: str, common: Mapping[str, Any], own: Mapping[str, Any], pooling: Mapping[str, Any], *, normalised: bool
) -> StockModel:
    modes = pooling.get("pooling_mode") or [mode for key, mode in _LEGACY_POOLING.items() if pooling.get(key)]
    mode = modes if isinstance(modes, str) else modes[0] if len(modes) == 1 else str(modes)
    others = [key for key in pooling if key.startswith("pooling_mode_") and key not in _LEGACY_POOLING and pooling[key]]
    similarity = own.get("similarity_fn_name") or "cosine"
    default = _prompt(own, own.get("default_prompt_name"))
    prompts: Mapping[str, Any] = own.get("prompts") or {}
    documents = next((key for key in _DOCUMENT_PROMPTS if key in prompts), None)
    query = _prompt(own, "query") if "query" in prompts else default
    document = _prompt(own, documents) if documents else default
    if mode not in ("mean", "cls", "max") or others:
        raise _unusable(name, f"its pooling is {', '.join(others) or mode}; implemented are mean, cls and max")
    if similarity not in ("cosine", "dot"):
        raise _unusable(name, f"its similarity is {similarity}; implemented are cosine and dot")
    if (query or document) and not pooling.get("include_prompt", True):
        raise _unusable(name, "it leaves prompts out of its pooling, which is not implemented")
    own_settings = {
        "kind": "bi-encoder",
        "pooling": mode,
        "similarity": similarity,
        "normalised": normalised,
        "query_prompt": query,
        "document_prompt": document,
    }
    return _stock(name, {**common, **own_settings})


def _stock(name: str, settings: Mapping[str, Any]) -> StockModel:
    try:
        return validated(StockModel, settings)
    except SettingError as error:
        raise _unusable(name, str(error)) from error


def _prompt(own: Mapping[str, Any], name: Any) -> str:
    return str((own.get("prompts") or {}).get(name) or "") if name else ""


def _optional(path: Path) -> Mapping[str, Any]:
    return read_json(path) if path.is_file() else {}


def _unusable(name: str, problem: str) -> SettingError:
    return SettingError(f"external:{shortened(name)} can't be used: {problem}. {_EXPECTED}.")


@final
class StockRanker:
    """A stock reranker that is loaded on a device."""

    def __init__(self, name: str, device: torch.device) -> None:
        self.settings = read_stock_model(name)
        self._device = device
        auto = "AutoModelForSequenceClassification" if self.settings.kind == "cross-encoder" else "AutoModel"
        self._model = _loaded(auto, name, self.settings.transformer, use_safetensors=True).to(device).eval().float()
        self._tokenizer = _loaded("AutoTokenizer", name, self.settings.transformer, use_fast=True)
        size = self._model.get_input_embeddings().num_embeddings
        if len(self._tokenizer) > size:
            raise _unusable(name, f"its tokenizer has {len(self._tokenizer)} tokens, and its model only {size} of them")
        limits = [self._tokenizer.model_max_length]
        if (getattr(self._model.config, "max_position_embeddings", None) or 0) > 0:
            limits.append(max_length(self._model.base_model))
        self.max_length = int(self.settings.max_length or min(limits))

    def scores(self, contexts: Sequence[Sequence[str]], candidates: Sequence[Sequence[str]]) -> list[Floats]:
        """Return the scores of each pool's candidates: logits of a cross-encoder, without a sigmoid, which makes ties
        near 0 and 1, or similarities of a bi-encoder.

        The oldest utterances of `contexts` are left out where they need over three quarters of the maximum length.
        """
        queries = [self._query(context) for context in contexts]
        if self.settings.kind == "cross-encoder":
            return self._pair_scores(queries, candidates)
        return self._similarities(queries, candidates)

    def _query(self, context: Sequence[str]) -> str:
        """Return the last utterances, one a line."""
        limit, kept = _QUERY_SHARE * self.max_length, list[str]()
        for text in reversed(context):
            longer = [text, *kept]
            size = len(self._tokenizer("\n".join(longer), add_special_tokens=False, verbose=False)["input_ids"])
            if kept and size > limit:
                break
            kept = longer
        return "\n".join(kept)

    def _pair_scores(self, queries: Sequence[str], candidates: Sequence[Sequence[str]]) -> list[Floats]:
        texts = [(query, text) for query, pool in zip(queries, candidates, strict=True) for text in pool]
        logits = self._passed(self._encoded([query for query, _ in texts], [text for _, text in texts]), self._logits)
        return np.split(logits[:, 0], np.cumsum([len(pool) for pool in candidates])[:-1])

    def _similarities(self, queries: Sequence[str], candidates: Sequence[Sequence[str]]) -> list[Floats]:
        settings = self.settings
        wanted = [settings.query_prompt + query for query in queries]
        given = [[settings.document_prompt + text for text in pool] for pool in candidates]
        distinct = list(dict.fromkeys([*wanted, *(text for pool in given for text in pool)]))
        vectors = self._passed(self._encoded(distinct), self._pooled)
        if settings.similarity == "cosine" or settings.normalised:
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        row = {text: index for index, text in enumerate(distinct)}
        rows = [([row[text] for text in pool], row[query]) for query, pool in zip(wanted, given, strict=True)]
        return [vectors[documents] @ vectors[query] for documents, query in rows]

    def _encoded(self, first: list[str], second: list[str] | None = None) -> list[dict[str, list[int]]]:
        if self.settings.lower_case:
            first, second = [text.lower() for text in first], second and [text.lower() for text in second]
        encoded = self._tokenizer(first, second, truncation="longest_first", max_length=self.max_length, verbose=False)
        names = list(encoded)
        return [dict(zip(names, row, strict=True)) for row in zip(*encoded.values(), strict=True)]

    def _passed(self, encoded: Sequence[dict[str, list[int]]], compute: Any) -> Floats:
        """Return what `compute` makes of each text, [N, D]."""
        lengths = [len(one["input_ids"]) for one in encoded]
        rows: list[Floats] = []
        order: list[int] = []
        with torch.inference_mode():
            for batch in ordered_batches(lengths, _MAX_BATCH, _MAX_TOKENS):
                padded = self._tokenizer.pad([encoded[index] for index in batch], return_tensors="pt")
                inputs = {name: tensor.to(self._device) for name, tensor in padded.items()}
                rows.append(compute(inputs).double().cpu().numpy())
                order += batch.tolist()
        return np.concatenate(rows)[np.argsort(order)]

    def _logits(self, inputs: Mapping[str, Tensor]) -> Tensor:
        logits = self._model(**inputs).logits.float()
        return logits if self.settings.activation in _MONOTONE else getattr(nn, self.settings.activation)()(logits)

    def _pooled(self, inputs: Mapping[str, Tensor]) -> Tensor:
        states, mask = self._model(**inputs).last_hidden_state.float(), inputs["attention_mask"][..., None]
        if self.settings.pooling == "cls":
            first = inputs["attention_mask"].argmax(1)
            return states[torch.arange(len(states), device=states.device), first]
        if self.settings.pooling == "max":
            return states.masked_fill(mask == 0, -torch.inf).max(1).values
        return (states * mask).sum(1) / mask.sum(1)


def _loaded(kind: str, name: str, folder: Path, **options: Any) -> Any:
    with loading(partial(_unusable, name)):
        return pretrained(kind, folder, **options)
