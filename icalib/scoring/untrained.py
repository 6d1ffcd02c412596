"""Scoring with rankers that nothing of the data trains: BM25, likeness among the candidates, bi-encoders, and those of
other libraries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import torch
from pydantic import Field, SerializeAsAny
from rank_bm25 import BM25Okapi
from scipy.special import expit
from typing_extensions import override

from icalib.core.job import Artifact, ByContent, ShardedJob, kept
from icalib.core.parquet import write_parquet
from icalib.data.bm25 import tfidf_vectors, tokenize
from icalib.data.encoding import Budget, TokenPool
from icalib.data.pools import as_pools, read_column, read_rows
from icalib.data.schema import Pool, Split
from icalib.data.selection import Rows, Selection
from icalib.encoders.backbone import Tokenizer
from icalib.encoders.off_the_shelf import StockRanker, model_digest
from icalib.encoders.transformer import AbstractEncoder
from icalib.models.bi_encoder import Floats, open_bi_encoder
from icalib.scoring.scores import pair_columns, score_table

WordScorer = Literal["bm25", "candidates-only"]


class _UntrainedScoreJob(ShardedJob):
    """Base of jobs that write SCORE_SCHEMA of a split's pools, with the score as the logit."""

    verb: ClassVar[str] = "scoring"

    data: Artifact
    """Pool folder."""
    split: Split
    selection: Selection

    @override
    def shard_path(self, folder: Path, index: int) -> Path:
        return folder / f"scores-{index:06d}.parquet"

    def _write(self, folder: Path, index: int, pools: Sequence[Pool], logits: Sequence[Floats], first: int) -> None:
        table = untrained_table(pools, np.concatenate(logits), range(first, first + len(pools)))
        write_parquet(self.shard_path(folder, index), table)


class WordScoreJob(_UntrainedScoreJob):
    """Scores by words, in one shard since their statistics cover all pools."""

    version: ClassVar[int] = 2  # words have their marks, and texts without spaces have pairs of characters

    scorer: WordScorer

    @property
    @override
    def uses_models(self) -> bool:
        return False

    @override
    def shards(self) -> Sequence[Any]:
        return [None]

    @override
    def compute_shard(self, index: int, shard: Any, folder: Path, device: torch.device) -> None:
        pools = selected_pools(self.data.path, self.split, self.selection)
        scores = bm25_scores(pools) if self.scorer == "bm25" else likeness_scores(pools)
        self._write(folder, index, pools, scores, 0)


class _ModelScoreJob(_UntrainedScoreJob):
    """Base of jobs that score with a model."""

    pools_per_shard: int = Field(default=64, ge=1)

    @override
    def shards(self) -> list[Rows]:
        rows = self.selection.rows(self.split, "all", read_column(self.data.path, self.split, "label_order"))
        return [rows[start : start + self.pools_per_shard] for start in range(0, len(rows), self.pools_per_shard)]

    @override
    def compute_shard(self, index: int, shard: Rows, folder: Path, device: torch.device) -> None:
        pools = list(as_pools(read_rows(self.data.path, self.split, shard)))
        self._write(folder, index, pools, self._logits(pools, device), index * self.pools_per_shard)

    def _logits(self, pools: Sequence[Pool], device: torch.device) -> Sequence[Floats]:
        raise NotImplementedError


class BiEncoderScoreJob(_ModelScoreJob):
    """Scores with a bi-encoder that has seen no labels: the cosine, in float32."""

    encoder: SerializeAsAny[AbstractEncoder.Config]
    """The bi-encoder's backbone."""
    model: Artifact | None = None
    """Checkpoint of a pre-trained bi-encoder; None: the backbone as it is."""

    @override
    def _logits(self, pools: Sequence[Pool], device: torch.device) -> Sequence[Floats]:
        config, path = self.encoder, self.model.path if self.model else None
        loaded = kept((self.digest(), device), lambda: open_bi_encoder(config, path).to(device).eval())
        tokenizer = Tokenizer(config.backbone)
        return [loaded.pool_cosines([token_pool(pool, tokenizer, config.budget) for pool in pools])]


class ExternalScoreJob(_ModelScoreJob):
    """Scores with a stock cross-encoder or bi-encoder."""

    version: ClassVar[int] = 2  # scored by sentence-transformers

    model: Annotated[str, ByContent(model_digest)]
    """Folder or hub name."""

    @override
    def _logits(self, pools: Sequence[Pool], device: torch.device) -> Sequence[Floats]:
        contexts = [[utterance.text for utterance in pool.context] for pool in pools]
        ranker = kept((self.digest(), device), lambda: StockRanker(self.model, device))
        return ranker.scores(contexts, [pool.candidates for pool in pools])


def selected_pools(data: Path, split: Split, selection: Selection) -> list[Pool]:
    """Read the selected pools of a split, labelled or not."""
    order = read_column(data, split, "label_order")
    return list(as_pools(read_rows(data, split, selection.rows(split, "all", order))))


def untrained_table(pools: Sequence[Pool] | Sequence[TokenPool], logit: Floats, rows: Sequence[int]) -> pa.Table:
    """Return SCORE_SCHEMA of pools: the score as the logit, its sigmoid as an uncalibrated probability."""
    certain = dict.fromkeys(("prob_var", "logit_var", "mutual_information"), np.zeros(len(logit)))
    halves = dict.fromkeys(("information_even", "information_odd"), np.full(len(logit), np.nan))
    moments = {"prob_mean": expit(logit), "logit_mean": logit, "num_passes": np.ones(len(logit), np.int64)}
    return score_table({**pair_columns(pools, rows, "plain"), **moments, **certain, **halves})


def token_pool(pool: Pool, tokenizer: Tokenizer, budget: Budget) -> TokenPool:
    """Tokenise a pool in memory."""
    context = tokenizer([utterance.text for utterance in pool.context])
    candidates = tokenizer(list(pool.candidates))
    return TokenPool(
        row=0,
        pool_id=pool.pool_id,
        dialog_id=pool.dialog_id,
        context=[np.array(ids[-budget.max_context_tokens :], np.int32) for ids in context],
        intents=(),
        candidates=[np.array(ids[: budget.max_candidate_tokens], np.int32) for ids in candidates],
        label=pool.label,
        also_right=pool.also_right,
    )


def bm25_scores(pools: Sequence[Pool]) -> list[Floats]:
    """Compute Okapi BM25 scores of each pool's candidates given its context, with statistics from all candidates."""
    documents = list(dict.fromkeys(candidate for pool in pools for candidate in pool.candidates))
    indices = {document: index for index, document in enumerate(documents)}
    bm25 = BM25Okapi([tokenize(document) for document in documents])
    scores: list[Floats] = []
    for pool in pools:
        query = tokenize(" ".join(utterance.text for utterance in pool.context))
        scores.append(np.asarray(bm25.get_batch_scores(query, [indices[c] for c in pool.candidates]), np.float64))
    return scores


def likeness_scores(pools: Sequence[Pool]) -> list[Floats]:
    """Compute the mean TF-IDF cosine of each candidate with the other candidates of its pool; no context is read."""
    vectors = tfidf_vectors([candidate for pool in pools for candidate in pool.candidates])
    scores: list[Floats] = []
    start = 0
    for pool in pools:
        size = len(pool.candidates)
        own = vectors[start : start + size].toarray()
        cosines = own @ own.T
        np.fill_diagonal(cosines, 0.0)
        scores.append(cosines.sum(1) / (size - 1))
        start += size
    return scores
