"""Stock rerankers, by sentence-transformers: cross-encoders with one label, and bi-encoders.

A folder's own settings are followed, as sentence-transformers does; weights are read from safetensors only, and no code
of a model is ever run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from icalib.core.errors import SettingError
from icalib.core.files import content_digest, file_digest, read_json, read_json_list
from icalib.core.text import shortened
from icalib.encoders.architecture import max_length
from icalib.encoders.backbone import EMBEDDED, backbone_path, loading

Floats = npt.NDArray[np.float64]

_FILES = ("*.json", "*.safetensors", "*.txt", "*.model")
_QUERY_SHARE = 0.75  # of the maximum length: older utterances are left out before a candidate is cut
_MAX_BATCH, _MAX_TOKENS, _MIN_TOKENS = 128, 32768, 8
_EXPECTED = (
    "Expected a folder or hub name of a sentence-transformers cross-encoder with one label, or of a bi-encoder of "
    "Transformer, Pooling, Dense and Normalize"
)


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


def is_cross_encoder(name: str) -> bool:
    """Return whether a model is a cross-encoder, else it is a bi-encoder; a SettingError if it can't be used."""
    if find_spec("sentence_transformers") is None:
        raise SettingError(
            "`external:` needs sentence-transformers, which is not installed. Run `pip install 'icalib[external]'`."
        )
    folder = model_folder(name)
    listed = read_json_list(folder / "modules.json") if (folder / "modules.json").is_file() else []
    types = [str(module.get("type", "")) for module in listed]
    if foreign := [one for one in types if not one.startswith("sentence_transformers.")]:
        raise _unusable(name, f"it needs the code of {foreign[0]}, which is not run")
    names = [one.rpartition(".")[2] for one in types]
    paths = [folder / str(module.get("path", "")) for module in listed] or [folder]
    if not (paths[0] / "config.json").is_file():
        raise _unusable(name, f"{paths[0]} has no config.json")
    config, own = read_json(paths[0] / "config.json"), _optional(folder / "config_sentence_transformers.json")
    architecture = str((config.get("architectures") or [""])[0])
    if names in ([], ["Transformer"]) and architecture.endswith("ForSequenceClassification"):
        _check_cross_encoder(name, config, own)
        return True
    is_known = names[:2] == ["Transformer", "Pooling"] and {*names[2:]} <= {"Dense", "Normalize"}
    if not is_known or own.get("model_type", "SentenceTransformer") != "SentenceTransformer":
        raise _unusable(name, f"its modules are {', '.join(names) or 'not listed'} and its architecture {architecture}")
    for kind, path in zip(names, paths, strict=True):
        if kind == "Dense":
            if not (path / "model.safetensors").is_file():
                raise _unusable(name, f"{path} has no model.safetensors")
            _check_activations(name, [_optional(path / "config.json").get("activation_function")])
    return False


def _check_cross_encoder(name: str, config: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    labels = config.get("id2label")
    count = len(labels) if isinstance(labels, dict) else 2  # pyright: ignore[reportUnknownArgumentType]
    if count != 1:
        raise _unusable(name, f"it has {count} labels, and a reranker has one")
    nested: Any = config.get("sentence_transformers") or {}
    in_config = nested.get("activation_fn") if isinstance(nested, dict) else None
    _check_activations(name, [own.get("activation_fn"), in_config, config.get("sbert_ce_default_activation_function")])


def _check_activations(name: str, paths: Sequence[Any]) -> None:
    # sentence-transformers would call anything of torch, or take another where it trusts none
    if others := [path for path in paths if path and not str(path).startswith("torch.nn.")]:
        raise _unusable(name, f"its activation {others[0]} is unknown")


def _optional(path: Path) -> Mapping[str, Any]:
    return read_json(path) if path.is_file() else {}


def _unusable(name: str, problem: str) -> SettingError:
    return SettingError(f"external:{shortened(name)} can't be used: {problem}. {_EXPECTED}.")


@final
class StockRanker:
    """A stock reranker that is loaded on a device."""

    def __init__(self, name: str, device: torch.device) -> None:
        self.is_cross_encoder = is_cross_encoder(name)
        with loading(partial(_unusable, name)):
            self._model = _loaded(model_folder(name), device, is_cross_encoder=self.is_cross_encoder)
            self._tokenizer = self._model.tokenizer
            self.max_length = self._model.max_seq_length = self._checked_length(name)
            self.scores([["a"]], [["b"]])

    def _checked_length(self, name: str) -> int:
        """Return the maximum length; a SettingError if the model isn't its tokenizer's, or reads next to nothing."""
        model, limits = self._model.transformers_model, [int(self._model.max_seq_length)]
        count, size = len(self._tokenizer), model.get_input_embeddings().num_embeddings
        if not len(self._tokenizer.all_special_tokens) < count <= size:
            raise _unusable(name, f"its tokenizer has {count} tokens, and its model {size}")
        if (getattr(model.config, "max_position_embeddings", None) or 0) > 0:
            limits.append(max_length(model.base_model))
        if min(limits) < _MIN_TOKENS:
            raise _unusable(name, f"it reads {min(limits)} tokens; the minimum is {_MIN_TOKENS}")
        return min(limits)

    def scores(self, contexts: Sequence[Sequence[str]], candidates: Sequence[Sequence[str]]) -> list[Floats]:
        """Return the scores of each pool's candidates: logits of a cross-encoder, without a sigmoid, which makes ties
        near 0 and 1, or similarities of a bi-encoder.

        The oldest utterances of `contexts` are left out where they need over three quarters of the maximum length.
        """
        queries = [self._query(context) for context in contexts]
        if self.is_cross_encoder:
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
        pairs = [(query, text) for query, pool in zip(queries, candidates, strict=True) for text in pool]
        own = self._model.activation_fn
        activation = nn.Identity() if isinstance(own, nn.Sigmoid) else own
        scores = self._computed(self._model.predict, pairs, activation_fn=activation)
        return np.split(scores, np.cumsum([len(pool) for pool in candidates])[:-1])

    def _similarities(self, queries: Sequence[str], candidates: Sequence[Sequence[str]]) -> list[Floats]:
        distinct = list(dict.fromkeys(text for pool in candidates for text in pool))
        row = {text: index for index, text in enumerate(distinct)}
        vectors = self._computed(self._model.encode_document, distinct)
        return [
            self._model.similarity(query, vectors[[row[text] for text in pool]])[0].numpy()
            for query, pool in zip(self._computed(self._model.encode_query, queries), candidates, strict=True)
        ]

    def _computed(self, compute: Any, texts: Sequence[str] | Sequence[tuple[str, str]], **options: Any) -> Floats:
        """Return what a method of sentence-transformers computes of each text or pair."""
        longest = max(len("".join(one).encode()) for one in texts)  # in bytes, which are more than tokens
        size = min(_MAX_BATCH, _MAX_TOKENS // min(longest + 1, self.max_length))
        return compute(texts, batch_size=max(size, 1), show_progress_bar=False, **options).astype(np.float64)


def _loaded(folder: Path, device: torch.device, *, is_cross_encoder: bool) -> Any:
    from sentence_transformers import CrossEncoder, SentenceTransformer

    return (CrossEncoder if is_cross_encoder else SentenceTransformer)(
        str(folder),
        device=str(device),
        local_files_only=True,
        trust_remote_code=False,
        model_kwargs={"use_safetensors": True, "dtype": torch.float32},
    )
