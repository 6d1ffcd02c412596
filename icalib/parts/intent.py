"""The intent part: whether a candidate has the intents of a reply to the context, and the context's intents × it.

Everything is convex and reads vectors of single utterances from a frozen encoder, so it learns from few labels, in
seconds: one logistic regression per intent on an utterance's vector and the intents predicted of the one before,
another for the intents of the utterance that follows, then a form that is linear in

    - ratio: log p(candidate | intents that are expected next) / p(candidate), as if intents were independent;
    - the last utterance's intents × the candidate's own intents, and × its vector,

which is fitted to choose the right candidate on top of the earlier parts' out-of-fold logits. Its weights have
Laplace's Gaussian posterior. Without intents (the plain view) the part is 0, so that the gain is the paper's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import torch
from pydantic import Field
from safetensors.numpy import load_file, save_file
from scipy.special import expit
from typing_extensions import override

from icalib.core.component import Settings
from icalib.core.files import whole_file, write_json
from icalib.core.job import Artifact, ByContent, ShardedJob
from icalib.data.encoding import Budget, Ids, Layout, TokenPool, TokenStore
from icalib.data.selection import Selection
from icalib.encoders.backbone import backbone_digest
from icalib.inference.convex import Choices, fit_choices, fit_labels, product, with_bias
from icalib.metrics.classification import classification, label_counts, micro_macro_f1
from icalib.models.checkpoint import CHECKPOINT_VERSION
from icalib.models.dual_encoder import DualEncoder, load_dual_encoder, text_vectors
from icalib.models.precision import Precision, autocast, resolve_precision
from icalib.parts.folds import fold_of
from icalib.scoring.column import Column, Columns, Floats, column_table
from icalib.scoring.gain import IntentChoice
from icalib.scoring.offsets import Offsets
from icalib.training.examples import PairLabels, gold_labels
from icalib.training.pseudo_labelled import pseudo_labelled
from icalib.training.validation import validation_rows

WEIGHTS = "intent.safetensors"
INTENTS_FILE = "intents.json"
"""How well intents are predicted on validation."""
OUT_OF_FOLD = "out-of-fold"
"""Folder with the column of the labelled pools, each by a fit to the other folds."""
_RIDGES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
_RARE = 1e-3  # the least frequency of an intent in the ratio
_MAX_VALIDATED = 500  # pools

Array = npt.NDArray[np.float32]
Vectors = Mapping[bytes, Array]
"""Vector of each text, by its ids."""


class Intent(Settings):
    """Settings of the intent part."""

    ridge: float = Field(default=0.05, gt=0)
    """Ridge of the logistic regressions of intents; the vectors have length 1."""
    num_components: int = Field(default=24, ge=1)
    """Principal components of the candidates' vectors."""
    num_folds: int = Field(default=5, ge=2)
    """K folds, which choose the ridge of the form, and from which later parts see this one out of fold."""
    max_crossed: int = Field(default=40, ge=0)
    """Cross the candidate's own predicted intents only up to this number of intents, since the form has its square."""


@dataclass(frozen=True)
class IntentModel:
    """Predicts intents from vectors.

    Args:
        utterance_DK: weights given the vector, the intents before, and whether there is no utterance before.
        candidate_DK: weights given the vector alone.
        next_DK: weights of the intents of the utterance that follows, given the vector and its intents.
    """

    utterance_DK: Array
    candidate_DK: Array
    next_DK: Array

    def of_context(self, vectors_TD: Array) -> Array:
        """Return the probabilities of each utterance's intents, given those predicted of the one before; [T, K]."""
        return _context_intents(self.utterance_DK, vectors_TD)

    def of_reply(self, vectors_ND: Array, probs_NK: Array) -> Array:
        """Return the probabilities of the intents of what follows utterances with these vectors and intents, [N, K]."""
        return _reply_intents(self.next_DK, vectors_ND, probs_NK)

    def of_candidates(self, vectors_CD: Array) -> Array:
        """Return the probabilities of the intents that candidates would have, [C, K]."""
        return expit(product(with_bias(vectors_CD), self.candidate_DK))


def _context_intents(utterance_DK: Array, vectors_TD: Array) -> Array:
    probs_TK = np.zeros((len(vectors_TD), utterance_DK.shape[1]), np.float32)
    for turn, vector_D in enumerate(vectors_TD):
        before_K = probs_TK[turn - 1] if turn else np.zeros_like(probs_TK[0])
        features = with_bias(_with_previous(vector_D[None], before_K[None], np.array([turn == 0])))
        probs_TK[turn] = expit(product(features, utterance_DK))[0]
    return probs_TK


def _reply_intents(next_DK: Array, vectors_ND: Array, probs_NK: Array) -> Array:
    return expit(product(with_bias(np.concatenate([vectors_ND, probs_NK], 1)), next_DK))


def _with_previous(vectors_ND: Array, before_NK: Array, is_first_N: npt.NDArray[np.bool_]) -> Array:
    return np.concatenate([vectors_ND, before_NK, is_first_N[:, None].astype(np.float32)], 1)


@dataclass(frozen=True)
class _Utterances:
    """All utterances of some contexts in order: vectors, gold intents, place in the context, and number of the pool."""

    vectors_ND: Array
    intents_NK: Array
    turn_N: npt.NDArray[np.int64]
    pool_N: npt.NDArray[np.int64]

    @classmethod
    def of(cls, pools: Sequence[TokenPool], vectors: Vectors, num_intents: int) -> _Utterances:
        found = [(number, turn, ids) for number, pool in enumerate(pools) for turn, ids in enumerate(pool.context)]
        hot_NK = np.zeros((len(found), num_intents), np.float32)
        for row, (number, turn, _) in enumerate(found):
            hot_NK[row, list(pools[number].intents[turn])] = 1.0
        return cls(
            np.stack([vectors[ids.tobytes()] for _, _, ids in found]),
            hot_NK,
            np.array([turn for _, turn, _ in found]),
            np.array([number for number, _, _ in found]),
        )

    def take(self, kept_N: npt.NDArray[np.bool_]) -> _Utterances:
        return _Utterances(self.vectors_ND[kept_N], self.intents_NK[kept_N], self.turn_N[kept_N], self.pool_N[kept_N])

    def before(self, values_NK: Array) -> Array:
        """Return the values of the utterance before, 0 for first ones."""
        previous_NK = np.roll(values_NK, 1, axis=0)
        previous_NK[self.turn_N == 0] = 0.0
        return previous_NK

    # Only utterances with intents are fitted to: nothing says whether the others were annotated. `before_NK` are the
    # intents of the utterance before, as predictions will have them.

    def fit_utterance(self, before_NK: Array, ridge: float) -> Array:
        known = self.intents_NK.any(1)
        features = _with_previous(self.vectors_ND, before_NK, self.turn_N == 0)
        return fit_labels(features[known], self.intents_NK[known], ridge)

    def fit_candidate(self, ridge: float) -> Array:
        known = self.intents_NK.any(1)
        return fit_labels(self.vectors_ND[known], self.intents_NK[known], ridge)

    def fit_next(self, before_NK: Array, ridge: float) -> Array:
        follows = np.flatnonzero(self.intents_NK.any(1) & (self.turn_N > 0))
        replied_to = np.concatenate([self.vectors_ND[follows - 1], before_NK[follows]], 1)
        return fit_labels(replied_to, self.intents_NK[follows], ridge)

    def predicted_by(self, utterance_DK: Array) -> Array:
        """Return the probabilities [N, K] that the weights of an intent model predict turn by turn."""
        starts = np.flatnonzero(self.turn_N == 0)
        parts = np.split(self.vectors_ND, starts[1:]) if len(starts) else []
        return np.concatenate([_context_intents(utterance_DK, part) for part in parts]) if parts else self.intents_NK


class ContextIntents(NamedTuple):
    """Probabilities of the intents of N utterances, and of what follows them; [N, K] each."""

    probs_NK: Array
    reply_NK: Array


def fit_intents(
    utterances: _Utterances, fold_P: npt.NDArray[np.int64], num_folds: int, ridge: float
) -> tuple[IntentModel, ContextIntents]:
    """Fit an intent model; return it and what is predicted out of fold of the utterances that it is fitted to.

    A first fit reads the gold intents before; the second reads those that the first predicts out of fold, with the
    errors that it will meet.
    """

    def out_of_fold(predict: Callable[[_Utterances, _Utterances, npt.NDArray[np.bool_]], Array]) -> Array:
        found_NK = np.zeros_like(utterances.intents_NK)
        for fold in range(num_folds):
            held_N = (fold_P == fold)[utterances.pool_N]
            if held_N.any() and not held_N.all():
                found_NK[held_N] = predict(utterances.take(~held_N), utterances.take(held_N), held_N)
        return found_NK

    def probs_given(before_NK: Array) -> Array:
        return out_of_fold(
            lambda others, held, held_N: held.predicted_by(others.fit_utterance(before_NK[~held_N], ridge))
        )

    before_NK = utterances.before(probs_given(utterances.before(utterances.intents_NK)))
    probs_NK = probs_given(before_NK)
    reply_NK = out_of_fold(
        lambda others, held, held_N: _reply_intents(
            others.fit_next(before_NK[~held_N], ridge), held.vectors_ND, probs_NK[held_N]
        )
    )
    weights = (utterances.fit_utterance(before_NK, ridge), utterances.fit_candidate(ridge))
    return IntentModel(*weights, utterances.fit_next(before_NK, ridge)), ContextIntents(probs_NK, reply_NK)


@dataclass(frozen=True)
class IntentWeights:
    """The fitted part: intent model, what candidates are like, the form and its posterior.

    Args:
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

    def features(self, probs_K: Array, reply_K: Array, candidates_CD: Array) -> Array:
        """Return what the form is linear in, [C, F], given the intents of the last utterance and of a reply to it."""
        intents_CK = self.model.of_candidates(candidates_CD)
        has_K, lacks_K = reply_K / self.frequency_K, (1 - reply_K) / (1 - self.frequency_K)
        ratio_CK = (intents_CK * has_K + (1 - intents_CK) * lacks_K).clip(1e-38)  # 0 and 1 may contradict each other
        known_CQ = product(candidates_CD - self.centre_D, self.components_DP)
        if self.crosses_intents:
            known_CQ = np.concatenate([known_CQ, intents_CK], 1)
        crossed_CF = (probs_K[None, :, None] * known_CQ[:, None, :]).reshape(len(known_CQ), -1)
        return np.concatenate([np.log(ratio_CK).sum(1, keepdims=True), crossed_CF], 1)

    def save(self, folder: Path) -> None:
        """Write a safetensors file."""
        arrays = (vars(self.model) | vars(self)).items()
        with whole_file(folder / WEIGHTS) as temporary:
            save_file({name: np.ascontiguousarray(value) for name, value in arrays if name != "model"}, temporary)

    @classmethod
    def load(cls, folder: Path) -> IntentWeights:
        """Read what `save` wrote."""
        found: dict[str, Any] = load_file(folder / WEIGHTS)
        model = IntentModel(*(found.pop(field.name) for field in fields(IntentModel)))
        return cls(model=model, crosses_intents=bool(found.pop("crosses_intents")[0]), **found)


@dataclass(frozen=True)
class LoadedIntent:
    """The intent part, which computes its column and predicts intents."""

    encoder: DualEncoder
    layout: Layout
    weights: IntentWeights
    device: torch.device
    precision: Precision
    has_variance: bool
    """Whether the column has the posterior's variance; a deterministic estimator ignores it."""

    @classmethod
    def load(cls, folder: Path, precision: Precision, device: torch.device, *, has_variance: bool) -> LoadedIntent:
        """Load a checkpoint."""
        encoder = load_dual_encoder(folder, precision, device)
        return cls(encoder, encoder.layout, IntentWeights.load(folder), device, precision, has_variance)

    def columns(self, pools: Sequence[TokenPool]) -> tuple[Columns, list[Array]]:
        """Return the column of pools, and the probabilities of each context's intents [T, K]."""
        texts = [ids for pool in pools for ids in (*pool.context, *pool.candidates)]
        vectors = vectors_of(self.encoder, self.layout, texts, self.device, self.precision)
        model = self.weights.model
        probs = [model.of_context(_utterances(pool, vectors)) for pool in pools]
        context = _last_intents(model, pools, np.stack([probs_TK[-1] for probs_TK in probs]), vectors)
        features_ND = _features(self.weights, pools, context, vectors)
        mean_N = product(features_ND, self.weights.form_F).astype(np.float64)
        var_N = (product(features_ND, self.weights.spread_FF).astype(np.float64) ** 2).sum(1)
        return {"intent": Column(mean_N[None], (var_N if self.has_variance else np.zeros_like(var_N))[None])}, probs


def chosen_intents(probs: Iterable[Array], choice: IntentChoice) -> list[list[list[int]]]:
    """Return the intents of each utterance that are chosen by their probabilities."""
    return [[choice.chosen(probs_K.astype(np.float64)).tolist() for probs_K in probs_TK] for probs_TK in probs]


def vectors_of(
    encoder: DualEncoder, layout: Layout, texts: Iterable[Ids], device: torch.device, precision: Precision
) -> Vectors:
    """Return the vector of each distinct text."""
    distinct = {ids.tobytes(): ids for ids in texts}
    with autocast(device, resolve_precision(precision, device)):
        found = text_vectors(encoder.encoder, layout, list(distinct.values()), device)
    return dict(zip(distinct, found, strict=True))


def _utterances(pool: TokenPool, vectors: Vectors) -> Array:
    return np.stack([vectors[ids.tobytes()] for ids in pool.context])


def _candidates(pool: TokenPool, vectors: Vectors) -> Array:
    return np.stack([vectors[ids.tobytes()] for ids in pool.candidates])


def _last_intents(model: IntentModel, pools: Sequence[TokenPool], probs_PK: Array, vectors: Vectors) -> ContextIntents:
    """Return the intents of each pool's last utterance, as they are given, and of a reply to it."""
    last_PD = np.stack([vectors[pool.context[-1].tobytes()] for pool in pools])
    return ContextIntents(probs_PK, model.of_reply(last_PD, probs_PK))


def _features(weights: IntentWeights, pools: Sequence[TokenPool], context: ContextIntents, vectors: Vectors) -> Array:
    each = zip(pools, *context, strict=True)
    return np.concatenate(
        [weights.features(probs_K, reply_K, _candidates(pool, vectors)) for pool, probs_K, reply_K in each]
    )


class IntentJob(ShardedJob):
    """Fits the intent part, in one shard; writes checkpoint/, the out-of-fold column, and what validation says."""

    version: ClassVar[int] = CHECKPOINT_VERSION + 2  # arrays by the names of their fields
    verb: ClassVar[str] = "fitting intents"

    settings: Intent
    backbone: Annotated[str, ByContent(backbone_digest)]
    budget: Budget
    start: Artifact | None = None
    """Checkpoint of a post-trained bi-encoder, which gives the vectors; None: the backbone."""
    selection: Selection
    num_intents: int
    train_tokens: Artifact
    validation_tokens: Artifact
    offsets: Artifact | None = None
    """Logits of the earlier parts; None: 0."""
    pseudo_labels: Artifact | None = None
    """Folder of pseudo-label shards, used in addition to the labelled pools."""
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
        encoder = DualEncoder(self.backbone, self.budget)
        if self.start is not None:
            encoder.start(self.start.path)
        encoder.to(device)
        store = TokenStore(self.train_tokens.path)
        rows = self.selection.rows("train", "labelled", store.column("label_order"))
        labelled = [gold_labels(pool, with_intents=False) for pool in store.pools(rows)]
        pseudo = pseudo_labelled(self.pseudo_labels.path, store) if self.pseudo_labels else []
        labels = [*labelled, *pseudo]
        pools = list(store.pools([one.row for one in labels]))
        texts = [ids for pool in pools for ids in (*pool.context, *pool.candidates)]
        vectors = vectors_of(encoder, encoder.layout, texts, device, self.precision)
        fold_P = fold_of(store, rows, self.settings.num_folds)
        known = _Utterances.of(pools[: len(labelled)], vectors, self.num_intents)
        model, found = fit_intents(known, fold_P, self.settings.num_folds, self.settings.ridge)
        last_N = np.append(known.turn_N[1:] == 0, True)
        of_others = [model.of_context(_utterances(pool, vectors))[-1] for pool in pools[len(labelled) :]]
        probs_PK = np.stack([*found.probs_NK[last_N], *of_others])
        context = _last_intents(model, pools, probs_PK, vectors)
        context.reply_NK[: len(labelled)] = found.reply_NK[last_N]
        weights, column = self._form(model, pools, labels, context, vectors, fold_P)
        encoder.save(folder / "checkpoint", encoder.state_dict())
        weights.save(folder / "checkpoint")
        (folder / OUT_OF_FOLD).mkdir(exist_ok=True)
        with whole_file(folder / OUT_OF_FOLD / "column-000000.parquet") as temporary:
            pq.write_table(column_table(pools[: len(labelled)], {"intent": column}), temporary)
        write_json(self.shard_path(folder, index), self._validation(model, encoder, device))

    def _form(
        self,
        model: IntentModel,
        pools: Sequence[TokenPool],
        labels: Sequence[PairLabels],
        context: ContextIntents,
        vectors: Vectors,
        fold_P: npt.NDArray[np.int64],
    ) -> tuple[IntentWeights, Column]:
        """Fit the form; return it, and the out-of-fold column of the labelled pools.

        Args:
            context: intents of each pool's last utterance and of a reply to it.
        """
        candidates = np.concatenate([_candidates(pool, vectors) for pool in pools])
        centre_D = candidates.mean(0)
        directions_QD = torch.linalg.svd(torch.from_numpy(candidates - centre_D), full_matrices=False).Vh.numpy()
        crosses = self.num_intents <= self.settings.max_crossed
        frequency_K = model.of_candidates(candidates).mean(0).clip(_RARE, 1 - _RARE)
        empty = np.zeros(0, np.float32)
        components_DP = np.ascontiguousarray(directions_QD[: self.settings.num_components].T)
        raw = IntentWeights(model, components_DP, centre_D, frequency_K, empty, empty[:, None], crosses)
        sizes = [len(pool.candidates) for pool in pools]
        pool_N = np.repeat(np.arange(len(pools)), sizes)
        x_ND = _features(raw, pools, context, vectors)
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

    def _validation(self, model: IntentModel, encoder: DualEncoder, device: torch.device) -> dict[str, Any]:
        """Return how well intents of validation pools are predicted; see `intent_measures`."""
        store = TokenStore(self.validation_tokens.path)
        pools = list(store.pools(validation_rows(store, self.selection)[:_MAX_VALIDATED]))
        texts = [ids for pool in pools for ids in pool.context]
        utterances = _Utterances.of(
            pools, vectors_of(encoder, encoder.layout, texts, device, self.precision), self.num_intents
        )
        known = utterances.intents_NK.any(1)
        return intent_measures(utterances.predicted_by(model.utterance_DK)[known], utterances.intents_NK[known] > 0)


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


def intent_measures(probs_NK: Floats | Array, gold_NK: npt.NDArray[np.bool_]) -> dict[str, Any]:
    """Return micro and macro F1 at each threshold, F1 of each intent at the best, and their frequencies."""
    if not len(probs_NK):
        return {}
    found: dict[str, Any] = {"thresholds": {}}
    best = (-1.0, 0.5)
    for threshold in (0.2, 0.3, 0.4, 0.5):
        micro, macro = micro_macro_f1(label_counts(probs_NK > threshold, gold_NK))
        found["thresholds"][f"{threshold:g}"] = {"micro_F1": micro, "macro_F1": macro}
        best = max(best, (micro, threshold))
    counts_3K = label_counts(probs_NK > best[1], gold_NK)
    micro, macro = micro_macro_f1(counts_3K)
    return found | {
        "threshold": best[1],
        "micro_F1": micro,
        "macro_F1": macro,
        "F1": classification(*counts_3K).f1.tolist(),
        "frequency": gold_NK.mean(0).tolist(),
        "predicted_frequency": probs_NK.mean(0).tolist(),
    }
