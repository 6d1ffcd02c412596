"""The intent part: whether a candidate has the intents of a reply to the context, and the context's intents × it.

Intents are predicted turn by turn from vectors of single utterances, by logistic regressions on a frozen encoder or by
an encoder of their own (`intent_encoder`). What follows is convex: a form that is linear in

    - ratio: log p(candidate | intents that are expected next) / p(candidate), as if intents were independent;
    - the last utterance's intents × the candidate's own intents, and × its vector,

which is fitted to choose the right candidate on top of the earlier parts' out-of-fold logits. Its weights have
Laplace's Gaussian posterior. Without intents (the plain view) the part is 0, so that the gain is the paper's.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field, model_validator
from safetensors.numpy import load_file, save_file
from torch import nn
from typing_extensions import override

from icalib.core.files import atomic_write, write_json
from icalib.core.job import Artifact, ByContent, ShardedJob
from icalib.core.parquet import write_parquet
from icalib.data.encoding import Budget, Intents, TokenPool, TokenStore
from icalib.data.folds import Fold, fold_of
from icalib.data.selection import Selection
from icalib.encoders.backbone import backbone_digest
from icalib.inference.convex import Choices, fit_choices, product
from icalib.models.bi_encoder import BiEncoder, load_bi_encoder
from icalib.models.checkpoint import CHECKPOINT_VERSION
from icalib.models.precision import Precision
from icalib.parts.intent_encoder import load_predictor
from icalib.parts.intent_model import (
    Array,
    IntentModel,
    IntentPredictor,
    PoolIntents,
    Utterances,
    Vectors,
    candidate_intents,
    fit_intents,
    intent_measures,
    stacked,
    vectors_of,
)
from icalib.parts.settings import EarlierPart
from icalib.scoring.column import Column, Columns, LoadedPart, column_table
from icalib.scoring.gain import AUTHORS_CHOICE, IntentChoice
from icalib.scoring.offsets import Offsets
from icalib.training.examples import PairLabels, gold_labels, training_rows
from icalib.training.pseudo_labelled import pseudo_labelled
from icalib.training.settings import EpochsRequired, TrainingSettings, measured_by
from icalib.training.validation import validation_rows
from icalib.uncertainty.estimator import AbstractEstimator

WEIGHTS = "intent.safetensors"
INTENTS_FILE = "intents.json"
"""How well intents are predicted on validation."""
OUT_OF_FOLD = "out-of-fold"
"""Folder with the column of the labelled pools, each by a fit to the other folds."""
OWN_ENCODER = "intents"
"""Folder of the encoder that predicts intents, in a checkpoint."""
_RIDGES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
_RARE = 1e-3  # the least frequency of an intent in the ratio
_MAX_VALIDATED = 500  # pools
_MAX_CROSSED = 40  # intents that are crossed with the candidate's own: the form has the square of their number


class Intent(EarlierPart):
    """Settings of the intent part."""

    training: Annotated[EpochsRequired, measured_by("NLL")] | None = TrainingSettings(
        epochs=3, patience=1, selection_metric="NLL", batch_size=16, learning_rate=5e-5, head_learning_rate=1e-2
    )
    """Training of an encoder that predicts intents, on the utterances of the labelled pools, from the regressions on;
    NLL on validation chooses its epoch, and the regressions stay if none is better. null: the regressions alone."""
    ridge: float = Field(default=0.05, gt=0)
    """Ridge of the logistic regressions of intents; the vectors have length 1."""
    num_components: int = Field(default=24, ge=1)
    """Principal components of the candidates' vectors."""
    num_folds: int = Field(default=5, ge=2)
    """K folds, which choose the ridge of the form, and from which later parts see this one out of fold."""

    @model_validator(mode="after")
    def _keeps_its_weights(self) -> Self:
        if self.training is not None and self.training.zero_stage == 3:  # validation reads the regressions' weights
            raise ValueError("found `zero_stage` 3 for intents. Expected: 0, 1 or 2")
        return self


@dataclass(frozen=True)
class IntentWeights:
    """The fitted part: intent model, what candidates are like, the form and its posterior.

    Args:
        model: regressions on the vectors of the part's encoder, or of the one that predicts intents, if there is one.
        components_DP, centre_D: principal components of the candidates' vectors.
        frequency_K: of the candidates' intents.
        form_F: weights of the features.
        spread_FF: L with Σ = L Lᵀ, the covariance of the weights.
        crosses_intents: whether the candidates' intents are crossed with those of the context.
    """

    model: IntentModel
    components_DP: Array
    centre_D: Array
    frequency_K: Array
    form_F: Array
    spread_FF: Array
    crosses_intents: bool

    def features(self, intents: PoolIntents, candidates_CD: Array) -> Array:
        """Return what the form is linear in, [C, F], given a pool's intents and its candidates' vectors."""
        probs_K, intents_CK = intents.context_TK[-1], intents.candidates_CK
        has_K, lacks_K = intents.reply_K / self.frequency_K, (1 - intents.reply_K) / (1 - self.frequency_K)
        ratio_CK = (intents_CK * has_K + (1 - intents_CK) * lacks_K).clip(1e-38)  # 0 and 1 may contradict each other
        known_CQ = product(candidates_CD - self.centre_D, self.components_DP)
        if self.crosses_intents:
            known_CQ = np.concatenate([known_CQ, intents_CK], 1)
        crossed_CF = (probs_K[None, :, None] * known_CQ[:, None, :]).reshape(len(known_CQ), -1)
        return np.concatenate([np.log(ratio_CK).sum(1, keepdims=True), crossed_CF], 1)

    def save(self, folder: Path) -> None:
        """Write a safetensors file."""
        arrays = (self.model._asdict() | vars(self)).items()
        with atomic_write(folder / WEIGHTS) as temporary:
            save_file({name: np.ascontiguousarray(value) for name, value in arrays if name != "model"}, temporary)

    @classmethod
    def load(cls, folder: Path) -> IntentWeights:
        """Read what `save` wrote."""
        found: dict[str, Any] = load_file(folder / WEIGHTS)
        model = IntentModel(*(found.pop(name) for name in IntentModel._fields))
        return cls(model=model, crosses_intents=bool(found.pop("crosses_intents")[0]), **found)


@dataclass(frozen=True)
class LoadedIntent(LoadedPart):
    """The intent part, which computes its column and predicts intents."""

    encoder: BiEncoder
    weights: IntentWeights
    predictor: IntentPredictor
    estimator: AbstractEstimator.Config
    """One that needs nothing ignores the posterior's variance, so that the column has none."""
    choice: IntentChoice = AUTHORS_CHOICE

    @classmethod
    def load(
        cls,
        folder: Path,
        estimator: AbstractEstimator.Config,
        precision: Precision,
        device: torch.device,
        choice: IntentChoice = AUTHORS_CHOICE,
    ) -> LoadedIntent:
        """Load a checkpoint."""
        encoder, weights, own = load_bi_encoder(folder, precision, device), IntentWeights.load(folder), None
        if (folder / OWN_ENCODER).is_dir():
            own = load_bi_encoder(folder / OWN_ENCODER, precision, device)
        predictor = IntentPredictor(own or encoder, weights.model, precision)
        return cls(encoder, weights, predictor, estimator, choice)

    @property
    @override
    def module(self) -> nn.Module:
        frozen, own = self.encoder.requires_grad_(False), self.predictor.encoder
        return frozen if own is frozen else nn.ModuleList([frozen, own])

    @override
    def with_estimator(self, estimator: AbstractEstimator.Config) -> LoadedIntent:
        return replace(self, estimator=estimator)

    @override
    def columns(
        self, pools: Sequence[TokenPool], seed: int, *, with_intents: bool, known: Sequence[Intents] | None = None
    ) -> tuple[Columns, list[list[list[int]]]]:
        column, probs = self.predict(pools)
        return {"intent": column}, chosen_intents(probs, self.choice)

    def predict(self, pools: Sequence[TokenPool]) -> tuple[Column, list[Array]]:
        """Return the column of pools, and the probabilities of each context's intents [T, K]."""
        predictor = self.predictor
        shares_vectors = predictor.encoder is self.encoder
        texts = [ids for pool in pools for ids in (*(pool.context if shares_vectors else ()), *pool.candidates)]
        vectors = vectors_of(self.encoder, texts, predictor.precision)
        intents = predictor.predict(pools, vectors if shares_vectors else None)
        features_ND = _features(self.weights, pools, intents, vectors)
        mean_N = product(features_ND, self.weights.form_F).astype(np.float64)
        var_N = (product(features_ND, self.weights.spread_FF).astype(np.float64) ** 2).sum(1)
        has_variance = self.estimator.needs != "nothing"
        column = Column(mean_N[None], (var_N if has_variance else np.zeros_like(var_N))[None])
        return column, [one.context_TK for one in intents]


def chosen_intents(probs: Iterable[Array], choice: IntentChoice) -> list[list[list[int]]]:
    """Return the intents of each utterance that are chosen by their probabilities."""
    return [[choice.chosen(probs_K.astype(np.float64)).tolist() for probs_K in probs_TK] for probs_TK in probs]


def _features(
    weights: IntentWeights, pools: Sequence[TokenPool], intents: Sequence[PoolIntents], vectors: Vectors
) -> Array:
    each = zip(pools, intents, strict=True)
    return np.concatenate([weights.features(one, stacked(pool.candidates, vectors)) for pool, one in each])


class IntentJob(ShardedJob):
    """Fits the intent part, in one shard; writes checkpoint/, the out-of-fold column, and what validation says."""

    version: ClassVar[int] = CHECKPOINT_VERSION + 4  # intents of candidates are out of fold, too
    verb: ClassVar[str] = "fitting intents"

    settings: Intent
    backbone: Annotated[str, ByContent(backbone_digest)]
    budget: Budget
    start: Artifact | None = None
    """Checkpoint of a pre-trained bi-encoder, which gives the vectors; None: the backbone."""
    left_out: Fold | None = None
    """Fold of the labelled pools that isn't trained on; None: no fold."""
    selection: Selection
    num_intents: int
    train_tokens: Artifact
    validation_tokens: Artifact
    offsets: Artifact | None = None
    """Logits of the earlier parts; None: 0."""
    pseudo_labels: Artifact | None = None
    """Folder of pseudo-label shards, used in addition to the labelled pools."""
    encoders: tuple[Artifact, ...] = ()
    """Checkpoints of encoders that predict intents: the one to keep, then one without each fold of the labelled pools,
    which predicts those; none: regressions on the vectors."""
    precision: Precision

    @override
    def shards(self) -> Sequence[Any]:
        return [None]

    @override
    def shard_path(self, folder: Path, index: int) -> Path:
        return folder / INTENTS_FILE

    @override
    def shared_files(self, folder: Path, index: int) -> Sequence[Path]:
        return [folder / "checkpoint", folder / OUT_OF_FOLD, self.shard_path(folder, index)]

    @override
    def compute_shard(self, index: int, shard: Any, folder: Path, device: torch.device) -> None:
        encoder = BiEncoder(self.backbone, self.budget)
        if self.start is not None:
            encoder.start(self.start.path)
        encoder.to(device)
        store = TokenStore(self.train_tokens.path)
        all_rows = training_rows(store, self.selection)
        rows = training_rows(store, self.selection, self.left_out)
        labelled = gold_labels(store, rows, with_intents=False)
        pseudo = pseudo_labelled(self.pseudo_labels.path, store) if self.pseudo_labels else []
        labels = [*labelled, *pseudo]
        pools = list(store.pools([one.row for one in labels]))
        texts = [ids for pool in pools for ids in (*pool.context, *pool.candidates)]
        vectors = vectors_of(encoder, texts, self.precision)
        fold_P = fold_of(store, rows, self.settings.num_folds)
        if self.encoders:
            predictor, *by_fold = [load_predictor(one.path, self.precision, device) for one in self.encoders]
            predicted_by_P = fold_of(store, all_rows, len(by_fold))[np.isin(all_rows, rows)]
            intents = _by_folds(by_fold, pools[: len(labelled)], predicted_by_P)
            intents += predictor.predict(pools[len(labelled) :])
        else:
            known = Utterances.of(pools[: len(labelled)], vectors, self.num_intents)
            given = (fold_P, self.settings.num_folds, self.settings.ridge)
            model, found = fit_intents(known, *given)
            predictor = IntentPredictor(encoder, model, self.precision)
            candidates = [stacked(pool.candidates, vectors) for pool in pools[: len(labelled)]]
            intents = found.of_pools(known, candidate_intents(known, candidates, *given))
            intents += predictor.predict(pools[len(labelled) :], vectors)
        weights, column = self._form(predictor.model, pools, labels, intents, vectors, fold_P)
        encoder.save(folder / "checkpoint", encoder.state_dict())
        weights.save(folder / "checkpoint")
        if self.encoders:
            shutil.copytree(self.encoders[0].path, folder / "checkpoint" / OWN_ENCODER, dirs_exist_ok=True)
        own = column_table(pools[: len(labelled)], {"intent": column})
        write_parquet(folder / OUT_OF_FOLD / "column-000000.parquet", own)
        write_json(self.shard_path(folder, index), self._validation(predictor))

    def _form(
        self,
        model: IntentModel,
        pools: Sequence[TokenPool],
        labels: Sequence[PairLabels],
        intents: Sequence[PoolIntents],
        vectors: Vectors,
        fold_P: npt.NDArray[np.int64],
    ) -> tuple[IntentWeights, Column]:
        """Fit the form; return it, and the out-of-fold column of the labelled pools."""
        candidates = np.concatenate([stacked(pool.candidates, vectors) for pool in pools])
        centre_D = candidates.mean(0)
        directions_QD = torch.linalg.svd(torch.from_numpy(candidates - centre_D), full_matrices=False).Vh.numpy()
        crosses = self.num_intents <= _MAX_CROSSED
        frequency_K = np.concatenate([one.candidates_CK for one in intents]).mean(0).clip(_RARE, 1 - _RARE)
        empty = np.zeros(0, np.float32)
        components_DP = np.ascontiguousarray(directions_QD[: self.settings.num_components].T)
        raw = IntentWeights(model, components_DP, centre_D, frequency_K, empty, empty[:, None], crosses)
        sizes = [len(pool.candidates) for pool in pools]
        pool_N = np.repeat(np.arange(len(pools)), sizes)
        x_ND = _features(raw, pools, intents, vectors)
        offset_N = np.zeros(len(x_ND), np.float32)
        if self.offsets is not None:
            found = Offsets.load(self.offsets.path / "train.parquet")
            offset_N = found.of_pools(pools, "plain").astype(np.float32)
        label_N = np.full(len(x_ND), -1, np.int64)
        for start, one in zip(np.cumsum([0, *sizes]), labels, strict=False):
            label_N[start + one.candidates] = one.labels
        # pseudo-labelled pools are in no fold: every fit has them
        fold_N = np.repeat(np.append(fold_P, np.full(len(pools) - len(fold_P), -1)), sizes)
        form = _Form(x_ND, offset_N, label_N, pool_N, fold_N)
        ridge, out_of_fold_N = form.best_ridge(self.settings.num_folds)
        form_F, spread_FF = form.fit(ridge)
        of_labelled = Column.certain(out_of_fold_N[fold_N >= 0].astype(np.float64))
        return replace(raw, form_F=form_F, spread_FF=spread_FF), of_labelled

    def _validation(self, predictor: IntentPredictor) -> dict[str, Any]:
        """Return how well intents of validation pools are predicted; see `intent_measures`."""
        store = TokenStore(self.validation_tokens.path)
        pools = list(store.pools(validation_rows(store, self.selection)[:_MAX_VALIDATED]))
        vectors = predictor.vectors(ids for pool in pools for ids in pool.context)
        utterances = Utterances.of(pools, vectors, self.num_intents)
        known = utterances.intents_NK.any(1)
        probs_NK = utterances.predicted_by(predictor.model.utterance_DK)
        return intent_measures(probs_NK[known], utterances.intents_NK[known] > 0)


def _by_folds(
    predictors: Sequence[IntentPredictor], pools: Sequence[TokenPool], fold_P: npt.NDArray[np.int64]
) -> list[PoolIntents]:
    """Return the intents of pools, each by the predictor that has not been trained on its fold."""
    found: dict[int, PoolIntents] = {}
    for fold, predictor in enumerate(predictors):
        held = np.flatnonzero(fold_P == fold).tolist()
        found |= zip(held, predictor.predict([pools[index] for index in held]), strict=True)
    return [found[index] for index in range(len(pools))]


@dataclass(frozen=True)
class _Form:
    """The data of the form: features, offsets, labels (−1: none), pools and folds of N pairs."""

    x_ND: Array
    offset_N: Array
    label_N: npt.NDArray[np.int64]
    pool_N: npt.NDArray[np.int64]
    fold_N: npt.NDArray[np.int64]

    def best_ridge(self, num_folds: int) -> tuple[float, Array]:
        """Return the ridge with the smallest out-of-fold loss, and the out-of-fold values that it gives [N]."""
        found: list[tuple[float, float, Array]] = []
        held_in = [self.fold_N == fold for fold in range(num_folds)]
        folds = [(held_N, self._choices(~held_N), self._choices(held_N)) for held_N in held_in]
        for ridge in _RIDGES:
            values_N = np.zeros(len(self.x_ND), np.float32)
            loss = 0.0
            for held_N, others, left_out in folds:
                weight_D = fit_choices(self.x_ND, self.offset_N, others, ridge)
                values_N[held_N] = product(self.x_ND[held_N], weight_D)
                loss += float(left_out.nll(torch.from_numpy(self.offset_N + values_N)))
            found.append((loss, ridge, values_N))
        _, ridge, values_N = min(found, key=lambda one: one[0])
        return ridge, values_N

    def fit(self, ridge: float) -> tuple[Array, Array]:
        """Return the weights [F] and L of their covariance L Lᵀ = (information + ridge)⁻¹ (Laplace)."""
        choices = self._choices(np.ones(len(self.x_ND), bool))
        weight_F = fit_choices(self.x_ND, self.offset_N, choices, ridge)
        logit_N = torch.from_numpy(self.offset_N + product(self.x_ND, weight_F))
        identity_FF = torch.eye(len(weight_F), dtype=torch.float64)
        factor_FF = torch.linalg.cholesky(choices.information(self.x_ND, logit_N) + ridge * identity_FF)
        inverse_FF = torch.linalg.solve_triangular(factor_FF, identity_FF, upper=False)
        return weight_F, np.ascontiguousarray(inverse_FF.T.float().numpy())

    def _choices(self, pairs_N: npt.NDArray[np.bool_]) -> Choices:
        return Choices.of(np.where(pairs_N, self.pool_N, -1), np.where(pairs_N, self.label_N, -1))
