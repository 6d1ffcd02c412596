"""Rankers without training: BM25, and the backbone as a bi-encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rank_bm25 import BM25Okapi

from icalib.data.batching import ordered_batches
from icalib.data.bm25 import tokenize
from icalib.data.encoding import Encoded, Ids, TokenPool
from icalib.data.schema import Pool
from icalib.encoders.bi_encoder import unit_means
from icalib.encoders.transformer import TransformerEncoder
from icalib.models.ranker import make_batch

Floats = npt.NDArray[np.float64]


def bm25_scores(pools: Sequence[Pool]) -> list[Floats]:
    """Okapi BM25 of each pool's candidates, the context being the query; statistics from all their candidates."""
    documents = list(dict.fromkeys(candidate for pool in pools for candidate in pool.candidates))
    places = {document: place for place, document in enumerate(documents)}
    index = BM25Okapi([tokenize(document) for document in documents])
    scores: list[Floats] = []
    for pool in pools:
        query = tokenize(" ".join(utterance.text for utterance in pool.context))
        scores.append(np.asarray(index.get_batch_scores(query, [places[c] for c in pool.candidates]), np.float64))
    return scores


def bi_encoder_scores(encoder: TransformerEncoder, layout: Any, pools: Sequence[TokenPool]) -> list[Floats]:
    """Cosine of the mean token states of context and candidate, encoded apart; each distinct text once."""
    texts: dict[bytes, Ids] = {}
    keys: list[tuple[bytes, list[bytes]]] = []
    for pool in pools:
        context = layout.context_ids(pool.context, None)
        texts[context.tobytes()] = context
        texts.update({ids.tobytes(): ids for ids in pool.candidates})
        keys.append((context.tobytes(), [ids.tobytes() for ids in pool.candidates]))
    vectors = dict(zip(texts, _unit_means(encoder, layout, list(texts.values())), strict=True))
    return [
        np.array([float(vectors[context] @ vectors[candidate]) for candidate in candidates])
        for context, candidates in keys
    ]


def _unit_means(encoder: TransformerEncoder, layout: Any, texts: Sequence[Ids]) -> Floats:
    encoded: list[Encoded] = [
        (np.concatenate([[layout.cls], ids, [layout.separator]], dtype=np.int32), len(ids) + 2) for ids in texts
    ]
    vectors = np.zeros((len(texts), encoder.width))
    encoder.eval()
    with torch.inference_mode():
        for places in ordered_batches([length for _, length in encoded], 256, 8192):
            batch = make_batch([encoded[int(place)] for place in places], layout, torch.device("cpu"))
            vectors[places] = unit_means(encoder, batch).double().numpy()
    return vectors
