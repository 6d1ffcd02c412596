"""The similarity part: the cosine of context and candidate, which a bi-encoder reads apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from icalib.core.job import Artifact, ByContent
from icalib.core.seeding import child_seed
from icalib.data.batching import shuffled_batches
from icalib.data.encoding import Budget, Encoded, Ids, Intents, Layout, Lists, Numbers, TokenPool, TokenStore
from icalib.data.folds import Fold
from icalib.data.selection import Selection
from icalib.encoders.backbone import backbone_digest
from icalib.encoders.transfer import to_device
from icalib.metrics.catalogue import metric_tag
from icalib.metrics.ranking import average_precision, mean_defined, recall_at_k
from icalib.models.bi_encoder import BiEncoder, load_bi_encoder
from icalib.models.checkpoint import CHECKPOINT_VERSION
from icalib.models.precision import Precision
from icalib.models.ranker import make_batch
from icalib.parts.settings import EarlierPart
from icalib.scoring.column import Column, Columns, LoadedPart
from icalib.training.domain_pretraining.contrastive import in_batch_losses
from icalib.training.epochs import Batches
from icalib.training.examples import LabelledPools, PairLabels, gold_labels, training_rows
from icalib.training.job import Training, TrainingJob
from icalib.training.loop import JointCurriculum
from icalib.training.pseudo_labelled import pseudo_labelled, soft_labelled
from icalib.training.settings import TrainingSettings, measured_by
from icalib.training.validation import PoolResult, joined_results, pool_results, validation_rows
from icalib.uncertainty.estimator import AbstractEstimator, MCDropout

_TASK = "bi_encoder"
_NUM_SPECIAL = 2  # [CLS] and [SEP] of a text that is read apart


class Similarity(EarlierPart):
    """Settings of the bi-encoder's training on labelled (and pseudo-labelled) pools.

    Each context's right candidate competes with the wrong candidates of its pool and with all candidates of the
    batch's other pools, which a cross-encoder would have to read pair by pair.
    """

    # cosines have no probabilities
    training: Annotated[TrainingSettings, measured_by("MAP", "R@1")] = TrainingSettings(
        epochs=3, patience=1, selection_metric="MAP", batch_size=8, max_tokens_per_batch=16384
    )
    """Optimiser and schedule; `batch_size` counts pools. The initial weights are kept if no epoch is better; with
    0 epochs, the bi-encoder stays as domain pre-training, or its backbone, leaves it."""
    num_folds: int = Field(default=2, ge=2)
    """K: later parts see this one out of fold, from K bi-encoders that were trained without a K-th of the labelled
    pools each."""
    temperature: float = Field(default=0.05, gt=0)
    """Divides the cosines before the softmax."""


class _Example(NamedTuple):
    row: int
    candidates: tuple[int, ...]  # the right one, then wrong ones
    precision: float = 1.0


class PoolContrast(JointCurriculum):
    """Batches of pools and their in-batch loss, as a `JointCurriculum`.

    Pools without a right candidate are left out; of several right candidates, each epoch draws one.
    """

    def __init__(
        self, pools: Sequence[PairLabels], store: TokenStore, layout: Layout, settings: Similarity, seed: int
    ) -> None:
        self._pools = LabelledPools.of(pools)
        self._trained = np.flatnonzero(self._pools.num_labelled(1))
        self._store, self._layout, self._settings, self._seed = store, layout, settings, seed
        self._keys = store.keys("candidate_keys")
        negatives = settings.training.train_negatives
        wrong = int(self._pools.num_labelled(0)[self._trained].max(initial=0))
        self._num_texts = 1 + (wrong if negatives is None else min(negatives, wrong))

    def batches(self, epoch: int) -> Batches[_Example]:
        """Return an epoch's batches, of pools of similar length."""
        training = self._settings.training
        rng = np.random.default_rng(child_seed(self._seed, "bi-encoder", epoch))
        drawn = Lists.joined([self._draw(self._pools[pool], rng) for pool in self._trained.tolist()])
        lengths = self._lengths(drawn)

        def example(number: int) -> _Example:
            pool = self._pools[self._trained[number]]
            return _Example(pool.row, tuple(drawn.at(number).tolist()), pool.precision)

        return Batches(shuffled_batches(lengths, training.batch_size, training.max_tokens_per_batch, rng), example)

    def _draw(self, pool: PairLabels, rng: np.random.Generator) -> Numbers:
        right = rng.choice(pool.candidates[pool.labels == 1])
        wrong = pool.candidates[pool.labels == 0]
        if len(wrong) >= self._num_texts:
            wrong = np.sort(rng.choice(wrong, self._num_texts - 1, replace=False))
        return np.append(right, wrong)

    def _lengths(self, drawn: Lists) -> Numbers:
        """Return the number of ids of each pool's context and drawn candidates, padded to the longest of these; [P]."""
        contexts, candidates = self._ids
        rows = self._rows
        texts = candidates.values[candidates.offsets[rows][drawn.rows()] + drawn.values]
        if not len(rows):
            return rows
        longest = np.minimum(np.maximum.reduceat(texts, drawn.offsets[:-1]), self._layout.budget.max_candidate_tokens)
        return contexts[rows] + _NUM_SPECIAL + np.diff(drawn.offsets) * (longest + _NUM_SPECIAL)

    @property
    def _rows(self) -> Numbers:
        return self._pools.rows_P[self._trained]

    @cached_property
    def _ids(self) -> tuple[Numbers, Lists]:
        """Number of ids of the context of each pool in the store, and of its candidates."""
        return self._layout.context_lengths(self._store.lengths("context")), self._store.lengths("candidates")

    def token_ids(self) -> Numbers:
        """Return the distinct ids of all tokens that the encoder reads."""
        return self._layout.token_ids(self._store.token_ids(self._rows))

    def texts(self, row: int, candidates: Sequence[int]) -> list[Ids]:
        """Return the ids of a pool's context and of some of its candidates, as the bi-encoder reads them."""
        pool = self._store.pool(row)
        maximum = self._layout.budget.max_candidate_tokens
        found = [
            self._layout.context_ids(pool.context, None),
            *(pool.candidates[index][:maximum] for index in candidates),
        ]
        return [self._layout.single(ids) for ids in found]

    def represent(self, forward: Callable[..., Any], examples: Sequence[_Example], device: torch.device) -> Tensor:
        """Return the vectors of each context and its candidates, [B, T, D]; the right one stands for missing ones."""
        contexts: list[Encoded] = []
        texts: dict[bytes, Encoded] = {}  # pools often share candidates
        keys_BT: list[list[bytes]] = []
        for example in examples:
            context, *candidates = self.texts(example.row, example.candidates)
            contexts.append((context, len(context)))
            keys = [ids.tobytes() for ids in candidates]
            texts |= {key: (ids, len(ids)) for key, ids in zip(keys, candidates, strict=True)}
            keys_BT.append([*keys, *keys[:1] * (self._num_texts - len(keys))])
        contexts_BD, texts_ND = forward(
            make_batch(contexts, self._layout, device), make_batch(list(texts.values()), self._layout, device)
        )
        number_of = {key: number for number, key in enumerate(texts)}
        index_BT = torch.tensor([[number_of[key] for key in keys] for keys in keys_BT])
        return torch.cat([contexts_BD[:, None], texts_ND[to_device(index_BT, device)]], 1)

    def compare(self, representations: Tensor, examples: Sequence[_Example]) -> tuple[str, Tensor]:
        """Return the summed loss of a batch from the vectors of all its texts."""
        keys_BT = np.stack([self._padded_keys(example) for example in examples])
        number_B = np.array([len(example.candidates) for example in examples])
        precision_B = np.array([example.precision for example in examples])
        losses_B = in_batch_losses(representations, keys_BT, number_B, self._settings.temperature, precision_B)
        return _TASK, losses_B.sum()

    def _padded_keys(self, example: _Example) -> Any:
        keys = self._keys.values[self._keys.offsets[example.row] + np.array(example.candidates)]
        return np.pad(keys, (0, self._num_texts - len(keys)), constant_values=keys[0])


class CosineValidation:
    """R@1 and MAP of the bi-encoder's cosines on validation pools.

    Args:
        rows: labelled validation pools; those with a right candidate count.
    """

    def __init__(self, store: TokenStore, rows: Sequence[int]) -> None:
        self._store, self._rows = store, rows

    def __call__(self, model: BiEncoder, rank: int, world_size: int) -> list[PoolResult]:
        """Return the cosines of every world-size-th pool."""
        pools = list(self._store.pools(self._rows[rank::world_size]))
        if not pools:  # more workers than pools
            return []
        return pool_results(pools, model.pool_cosines(pools))

    def metrics(self, results: Sequence[Sequence[PoolResult]]) -> dict[str, float]:
        """Compute R@1 and MAP, by tag."""
        scores = joined_results(results, lambda cosine_N, _: (1 + cosine_N) / 2)
        found = {"R@1": recall_at_k(scores, 1), "MAP": average_precision(scores)}
        return {metric_tag(name): mean_defined(values) for name, values in found.items()}


class SimilarityJob(TrainingJob):
    """Trains a bi-encoder on labelled, pseudo-labelled and softly labelled pools."""

    version: ClassVar[int] = CHECKPOINT_VERSION + 4  # word embeddings of tokens that occur

    backbone: Annotated[str, ByContent(backbone_digest)]
    budget: Budget
    dropout: float | None = None
    """Of hidden states and attention; None: the backbone's own."""
    settings: Similarity
    selection: Selection
    train_tokens: Artifact
    validation_tokens: Artifact
    start: Artifact | None = None
    """Checkpoint of a bi-encoder; None starts from the backbone."""
    left_out: Fold | None = None
    """Fold of the labelled pools that isn't trained on."""
    pseudo_labels: Artifact | None = None
    """Folder of pseudo-label shards, used in addition to the labelled pools."""
    soft_labels: Artifact | None = None
    """File of soft labels, used in addition to those."""
    seed: int

    @property
    @override
    def loop(self) -> tuple[TrainingSettings, int]:
        return self.settings.training, self.seed

    @override
    def build(self, device: torch.device) -> Training:
        encoder = BiEncoder(self.backbone, self.budget, dropout=self.dropout)
        if self.start is not None:
            encoder.start(self.start.path)
        store = TokenStore(self.validation_tokens.path)
        validation = CosineValidation(store, validation_rows(store, self.selection))
        curriculum = self.curriculum(encoder.layout)
        return Training(encoder, curriculum, validation, start_ranks=True, token_ids=curriculum.token_ids())

    def curriculum(self, layout: Layout) -> PoolContrast:
        """Return the labelled, pseudo-labelled and softly labelled pools, as they are trained on."""
        store = TokenStore(self.train_tokens.path)
        pools = gold_labels(store, training_rows(store, self.selection, self.left_out), with_intents=False)
        if self.pseudo_labels is not None:
            pools = LabelledPools.joined([pools, pseudo_labelled(self.pseudo_labels.path, store)])
        if self.soft_labels is not None:
            taken = set(pools.rows_P.tolist())
            softly = soft_labelled(self.soft_labels.path, store, self.selection, taken)
            pools = LabelledPools.joined([pools, softly])
        return PoolContrast(pools, store, layout, self.settings, self.seed)


@dataclass(frozen=True)
class LoadedSimilarity(LoadedPart):
    """A bi-encoder that computes its column."""

    model: BiEncoder
    precision: Precision
    estimator: AbstractEstimator.Config
    """With MC dropout, the number of passes with dropout; otherwise there is one without."""

    @classmethod
    def load(
        cls, folder: Path, estimator: AbstractEstimator.Config, precision: Precision, device: torch.device
    ) -> LoadedSimilarity:
        """Load a checkpoint, in evaluation mode."""
        return cls(load_bi_encoder(folder, precision, device), precision, estimator)

    @property
    @override
    def module(self) -> BiEncoder:
        return self.model

    @override
    def with_estimator(self, estimator: AbstractEstimator.Config) -> LoadedSimilarity:
        return replace(self, estimator=estimator)

    @override
    def columns(
        self, pools: Sequence[TokenPool], seed: int, *, with_intents: bool, known: Sequence[Intents] | None = None
    ) -> tuple[Columns, None]:
        """Return the cosines of pools; they are the same in both views."""
        seeds: list[int | None] = [None]
        if isinstance(self.estimator, MCDropout.Config):
            seeds = [child_seed(seed, "similarity", t) for t in range(self.estimator.num_passes)]
        return {"plain": Column(*self.model.crossed_cosines(pools, seeds, self.precision))}, None
