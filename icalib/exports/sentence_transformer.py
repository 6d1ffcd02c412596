"""A folder that stock `sentence_transformers.SentenceTransformer(folder)` loads, without remote code."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from icalib.calibration.fitted import AffineMap
from icalib.core.errors import ExportError
from icalib.data.schema import Pool
from icalib.encoders.backbone import Tokenizer, load_config, quiet_transformers
from icalib.exports.agreement import Agreement
from icalib.exports.cross_encoder import plain_weights, sentence_transformers_version, write_tokenizer
from icalib.exports.texts import PairTexts
from icalib.models.dual_encoder import pool_cosines
from icalib.scoring.loaded import LoadedBiEncoder
from icalib.scoring.untrained import token_pool

_TOLERANCE = 1e-5  # of cosines

_MODULES = "sentence_transformers.base.modules"
_FILES = {
    "modules.json": [
        {"idx": 0, "name": "0", "path": "", "type": f"{_MODULES}.transformer.Transformer"},
        {
            "idx": 1,
            "name": "1",
            "path": "1_Pooling",
            "type": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
        },
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": f"{_MODULES}.normalize.Normalize"},
    ],
    "sentence_bert_config.json": {
        "transformer_task": "feature-extraction",
        "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
        "module_output_name": "token_embeddings",
    },
    "2_Normalize/config.json": {
        "module_input_name": "sentence_embedding",
        "module_output_name": "sentence_embedding",
    },
}


def plain_backbone(bi_encoder: LoadedBiEncoder) -> Any:
    """Return transformers' model of a bi-encoder's backbone, which has no other weights.

    Raises:
        ExportError: the weights don't fit transformers' model.
    """
    from transformers import AutoModel

    config = load_config(bi_encoder.config.backbone)
    config.num_hidden_layers = bi_encoder.encoder.backbone.config.num_hidden_layers
    config.dtype = torch.float32
    with quiet_transformers():
        model: Any = AutoModel.from_config(config, add_pooling_layer=False)
    weights = plain_weights(bi_encoder.encoder.backbone, config.vocab_size)
    missing, unexpected = model.load_state_dict(weights, strict=False)
    if missing or unexpected:
        raise ExportError(
            f"the weights of the bi-encoder don't fit {type(model).__name__}: {[*missing, *unexpected][0]}. Report "
            "this with the run's config.yaml."
        )
    return model.eval()


def check_agreement(
    model: Any, tokenizer: Any, texts: PairTexts, bi_encoder: LoadedBiEncoder, of_cosine: AffineMap, pools: list[Pool]
) -> Agreement:
    """Compare cosines and best candidates on some pools, from their texts on.

    Raises:
        ExportError: the cosines of equal tokens differ.
    """
    encoder, config = bi_encoder.encoder, bi_encoder.config
    tokenize = Tokenizer(config.backbone)
    num_pairs = num_same_tokens = num_same_best = 0
    largest = 0.0
    for pool in pools:
        tokens = token_pool(pool, tokenize, config.budget)
        (expected_C,) = pool_cosines(encoder, bi_encoder.layout, [tokens])
        pairs = texts.pairs(tokenizer, [turn.text for turn in pool.context], pool.candidates)
        context, candidates = _ids(tokenizer, [pairs[0][0]])[0], _ids(tokenizer, [text for _, text in pairs])
        found_C = _cosines(model, tokenizer, pairs[0][0], [text for _, text in pairs])
        same_context = context == bi_encoder.layout.context_ids(tokens.context, None).tolist()
        pairs_ids = zip(candidates, tokens.candidates, strict=True)
        same_C = np.array([same_context and ids == own.tolist() for ids, own in pairs_ids])
        num_pairs += len(same_C)
        num_same_tokens += int(same_C.sum())
        num_same_best += int(found_C.argmax() == expected_C.argmax())
        largest = max(largest, float(np.abs(found_C - expected_C)[same_C].max(initial=0.0)))
    if not largest <= _TOLERANCE:
        raise ExportError(
            f"the exported bi-encoder's cosines differ from the run's by {largest:.1e} on pairs with the same tokens; "
            f"at most {_TOLERANCE:g} was expected. Nothing was written. Report this with the run's config.yaml."
        )
    return Agreement(len(pools), num_pairs, num_same_tokens, num_same_best, largest * of_cosine.slope)


def write_sentence_transformer(folder: Path, model: Any, tokenizer: Any) -> None:
    """Write model, tokenizer and the files of sentence-transformers to an empty folder."""
    with quiet_transformers():
        model.save_pretrained(folder)
    write_tokenizer(folder, tokenizer)
    pooling = {"embedding_dimension": model.config.hidden_size, "pooling_mode": "mean", "include_prompt": True}
    about = {
        "__version__": {
            "pytorch": version("torch"),
            "sentence_transformers": sentence_transformers_version(),
            "transformers": version("transformers"),
        },
        "default_prompt_name": None,
        "model_type": "SentenceTransformer",
        "prompts": {"document": "", "query": ""},
        "similarity_fn_name": "cosine",
    }
    files = {**_FILES, "1_Pooling/config.json": pooling, "config_sentence_transformers.json": about}
    for name, value in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _ids(tokenizer: Any, texts: list[str]) -> list[list[int]]:
    return tokenizer(texts, add_special_tokens=False)["input_ids"]


def _cosines(model: Any, tokenizer: Any, context: str, candidates: list[str]) -> npt.NDArray[np.float64]:
    """Compute what sentence-transformers does: mean pooling over all tokens, then the cosine."""
    inputs = tokenizer([context, *candidates], padding=True, truncation=True, return_tensors="pt")
    mask_BL1 = inputs["attention_mask"][..., None]
    with torch.inference_mode():
        states_BLD = model(**inputs).last_hidden_state
    units_BD = nn.functional.normalize((states_BLD * mask_BL1).sum(1) / mask_BL1.sum(1), dim=1).double()
    return (units_BD[1:] @ units_BD[0]).numpy()
