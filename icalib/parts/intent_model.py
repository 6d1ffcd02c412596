"""Predicting intents from vectors of single utterances: logistic regressions, and an encoder that carries them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from icalib.data.encoding import Ids, TokenPool
from icalib.inference.convex import fit_labels, product, with_bias
from icalib.metrics.classification import classification, label_counts, micro_macro_f1
from icalib.models.bi_encoder import BiEncoder
from icalib.models.precision import Precision
from icalib.scoring.column import Floats

Array = npt.NDArray[np.float32]
Vectors = Mapping[bytes, Array]
"""Vector of each text, by its ids."""


class IntentModel(NamedTuple):
    """Predicts intents from vectors.

    Args:
        utterance_DK: weights given the vector, the intents before, and whether there is no utterance before.
        candidate_DK: weights given the vector alone.
        next_DK: weights of the intents of the utterance that follows, given the vector and its intents.
    """

    utterance_DK: Array
    candidate_DK: Array
    next_DK: Array


def intents_alone(candidate_DK: Array, vectors_CD: Array) -> Array:
    """Return the probabilities of the intents that candidates would have, [C, K]."""
    return expit(product(with_bias(vectors_CD), candidate_DK))


def _context_intents(utterance_DK: Array, vectors_TD: Array) -> Array:
    """Return the probabilities of each utterance's intents, given those predicted of the one before; [T, K]."""
    probs_TK = np.zeros((len(vectors_TD), utterance_DK.shape[1]), np.float32)
    for turn, vector_D in enumerate(vectors_TD):
        before_K = probs_TK[turn - 1] if turn else np.zeros_like(probs_TK[0])
        features = with_bias(_with_previous(vector_D[None], before_K[None], np.array([turn == 0])))
        probs_TK[turn] = expit(product(features, utterance_DK))[0]
    return probs_TK


def _reply_intents(next_DK: Array, vectors_ND: Array, probs_NK: Array) -> Array:
    """Return the probabilities of the intents of what follows utterances with these vectors and intents, [N, K]."""
    return expit(product(with_bias(np.concatenate([vectors_ND, probs_NK], 1)), next_DK))


def _with_previous(vectors_ND: Array, before_NK: Array, is_first_N: npt.NDArray[np.bool_]) -> Array:
    return np.concatenate([vectors_ND, before_NK, is_first_N[:, None].astype(np.float32)], 1)


@dataclass(frozen=True)
class Utterances:
    """All utterances of some contexts in order: vectors, gold intents, place in the context, and number of the pool."""

    vectors_ND: Array
    intents_NK: Array
    turn_N: npt.NDArray[np.int64]
    pool_N: npt.NDArray[np.int64]

    @classmethod
    def of(cls, pools: Sequence[TokenPool], vectors: Vectors, num_intents: int) -> Utterances:
        """Return the utterances of the contexts of some pools."""
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

    def take(self, kept_N: npt.NDArray[np.bool_]) -> Utterances:
        """Return those of whole contexts."""
        return Utterances(self.vectors_ND[kept_N], self.intents_NK[kept_N], self.turn_N[kept_N], self.pool_N[kept_N])

    def before(self, values_NK: Array) -> Array:
        """Return the values of the utterance before, 0 for first ones."""
        previous_NK = np.roll(values_NK, 1, axis=0)
        previous_NK[self.turn_N == 0] = 0.0
        return previous_NK

    # Only utterances with intents are fitted to: nothing says whether the others were annotated. `before_NK` are the
    # intents of the utterance before, as predictions will have them.

    def fit_utterance(self, before_NK: Array, ridge: float) -> Array:
        """Fit the weights given the vector and the intents before."""
        known = self.intents_NK.any(1)
        features = _with_previous(self.vectors_ND, before_NK, self.turn_N == 0)
        return fit_labels(features[known], self.intents_NK[known], ridge)

    def fit_candidate(self, ridge: float) -> Array:
        """Fit the weights given the vector alone."""
        known = self.intents_NK.any(1)
        return fit_labels(self.vectors_ND[known], self.intents_NK[known], ridge)

    def fit_next(self, before_NK: Array, ridge: float) -> Array:
        """Fit the weights of the intents of what follows."""
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

    def of_pools(self, utterances: Utterances, candidates: Sequence[Array]) -> list[PoolIntents]:
        """Return these as the intents of whole pools, with those of their candidates [C, K]."""
        starts = np.flatnonzero(utterances.turn_N == 0)[1:]
        probs, replies = np.split(self.probs_NK, starts), np.split(self.reply_NK, starts)
        each = zip(probs, replies, candidates, strict=True)
        return [PoolIntents(probs_TK, reply_TK[-1], one_CK) for probs_TK, reply_TK, one_CK in each]


def fit_intents(
    utterances: Utterances, fold_P: npt.NDArray[np.int64], num_folds: int, ridge: float
) -> tuple[IntentModel, ContextIntents]:
    """Fit an intent model; return it and what is predicted out of fold of the utterances that it is fitted to.

    A first fit reads the gold intents before; the second reads those that the first predicts out of fold, with the
    errors that it will meet.
    """

    def out_of_fold(predict: Callable[[Utterances, Utterances, npt.NDArray[np.bool_]], Array]) -> Array:
        found_NK = np.zeros_like(utterances.intents_NK)
        for held_P in _held_out(fold_P, num_folds):
            held_N = held_P[utterances.pool_N]
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


def candidate_intents(
    utterances: Utterances, candidates: Sequence[Array], fold_P: npt.NDArray[np.int64], num_folds: int, ridge: float
) -> list[Array]:
    """Return the probabilities [C, K] of the intents of each pool's candidates, predicted out of fold.

    A candidate is often an utterance of another pool of its dialogue, or that pool's right reply.

    Args:
        candidates: vectors [C, D] of each pool's candidates.
    """
    found = [np.zeros((len(one_CD), utterances.intents_NK.shape[1]), np.float32) for one_CD in candidates]
    for held_P in _held_out(fold_P, num_folds):
        weights = utterances.take(~held_P[utterances.pool_N]).fit_candidate(ridge)
        for number in np.flatnonzero(held_P).tolist():
            found[number] = intents_alone(weights, candidates[number])
    return found


def _held_out(fold_P: npt.NDArray[np.int64], num_folds: int) -> Iterator[npt.NDArray[np.bool_]]:
    """Iterate over the folds that have pools, and others to fit to; which pools each has, [P]."""
    masks = (fold_P == fold for fold in range(num_folds))
    return (held_P for held_P in masks if held_P.any() and not held_P.all())


class PoolIntents(NamedTuple):
    """Probabilities of the intents of a context's utterances [T, K], of a reply to it [K], and of candidates [C, K]."""

    context_TK: Array
    reply_K: Array
    candidates_CK: Array


@dataclass(frozen=True)
class IntentPredictor:
    """An encoder, and the regressions on its vectors."""

    encoder: BiEncoder
    model: IntentModel
    precision: Precision

    def vectors(self, texts: Iterable[Ids]) -> Vectors:
        """Return the vector of each distinct text."""
        return vectors_of(self.encoder, texts, self.precision)

    def predict(self, pools: Sequence[TokenPool], vectors: Vectors | None = None) -> list[PoolIntents]:
        """Return the intents of pools; `vectors` are this encoder's, if they are known already."""
        if vectors is None:
            vectors = self.vectors(ids for pool in pools for ids in (*pool.context, *pool.candidates))
        return [self._predict(pool, vectors) for pool in pools]

    def _predict(self, pool: TokenPool, vectors: Vectors) -> PoolIntents:
        vectors_TD, vectors_CD = stacked(pool.context, vectors), stacked(pool.candidates, vectors)
        context_TK = _context_intents(self.model.utterance_DK, vectors_TD)
        reply_K = _reply_intents(self.model.next_DK, vectors_TD[-1:], context_TK[-1:])[0]
        return PoolIntents(context_TK, reply_K, intents_alone(self.model.candidate_DK, vectors_CD))


def vectors_of(encoder: BiEncoder, texts: Iterable[Ids], precision: Precision) -> Vectors:
    """Return the vector of each distinct text."""
    distinct = {ids.tobytes(): ids for ids in texts}
    if not distinct:
        return {}
    return dict(zip(distinct, encoder.vectors(list(distinct.values()), precision), strict=True))


def stacked(texts: Sequence[Ids], vectors: Vectors) -> Array:
    """Return the vectors of some texts, [N, D]."""
    return np.stack([vectors[ids.tobytes()] for ids in texts])


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
