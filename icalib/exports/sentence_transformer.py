"""A folder that stock `sentence_transformers.SentenceTransformer(folder)` loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import normalize

from icalib.data.schema import Pool
from icalib.encoders.backbone import Tokenizer
from icalib.exports.agreement import Comparison, Scorer, Scores
from icalib.exports.stock import read_stock, stock_model, token_ids, write_stock
from icalib.exports.subject import Subject
from icalib.exports.texts import PairTexts
from icalib.models.dual_encoder import pool_cosines
from icalib.parts.loaded import LoadedBiEncoder
from icalib.scoring.untrained import token_pool

_MODULES = "sentence_transformers.base.modules"
_POOLING = "sentence_transformers.sentence_transformer.modules.pooling.Pooling"
_FILES = {
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
    subject: Subject[LoadedBiEncoder], folder: Path, tokenizer: Any, texts: PairTexts
) -> Comparison:
    """Write the folder of a bi-encoder: mean pooling over all tokens, then the cosine."""
    from transformers import AutoModel

    bi_encoder = subject.model
    model = stock_model(AutoModel, bi_encoder.config.backbone, bi_encoder.encoder.backbone)
    pooling = {"embedding_dimension": model.config.hidden_size, "pooling_mode": "mean", "include_prompt": True}
    write_stock(folder, model, tokenizer, {**_FILES, "1_Pooling/config.json": pooling})
    return Comparison(
        _scorer(bi_encoder), _written_scorer(folder, texts), tolerance=1e-5
    )  # slopes of cosines are steep


def _scorer(bi_encoder: LoadedBiEncoder) -> Scorer:
    tokenize, layout = Tokenizer(bi_encoder.config.backbone), bi_encoder.layout

    def score(pool: Pool) -> Scores:
        tokens = token_pool(pool, tokenize, bi_encoder.config.budget)
        (cosine_C,) = pool_cosines(bi_encoder.encoder, layout, [tokens])
        context = [layout.cls, *layout.context_ids(tokens.context, None).tolist(), layout.separator]
        ids = [[*context, layout.cls, *ids.tolist(), layout.separator] for ids in tokens.candidates]
        return Scores(ids, cosine_C[:, None])

    return score


def _written_scorer(folder: Path, texts: PairTexts) -> Scorer:
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
