"""Scores of pools as flat arrays, the input of every metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from icalib.core.errors import DataError

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
V = TypeVar("V", bound=np.generic)

_COLUMNS = ("pool_id", "candidate", "label", "logit", "prob")
P_NONE = "p_none"
"""Column of predictions: the probability that no candidate of the pool is right, the same in all its rows."""
_SUM_TOLERANCE = 1e-3  # of rounded probabilities
_EVALUATE_AGAIN = "Score the pools again, or evaluate the predictions that `icalib run` wrote."


@dataclass(frozen=True, eq=False)
class PoolScores:
    """Scores of B pools with N pairs in all; pools may differ in their number of candidates."""

    pool_ids: tuple[str, ...]  # [B], ascending
    logit: FloatArray  # [N], the ranking score
    prob: FloatArray  # [N], probability of being right
    label: IntArray  # [N], 1 right, 0 wrong
    offsets: IntArray  # [B + 1]; pool b's candidates are `offsets[b]:offsets[b + 1]`
    p_none: FloatArray | None = None  # [B], probability that no candidate is right; None where it was not fitted

    @classmethod
    def from_predictions(cls, predictions: pa.Table) -> PoolScores:
        """Return the pools of a PREDICTION_SCHEMA table whose labels are known; the order of its rows does not matter.

        A DataError says that a column is missing or has nulls, a pair occurs twice, a score is NaN, a probability
        outside [0, 1] or a label not −1, 0 or 1, or that no pool has known labels.
        """
        _check_columns(predictions)
        names = [*_COLUMNS, *([P_NONE] if P_NONE in predictions.column_names else [])]
        known = _drop_unlabelled(predictions.select(names))
        if known.num_rows == 0:
            raise DataError(
                "no pool has a known label, so nothing can be measured",
                "Evaluate pools whose `label` is the index of the right candidate.",
                field="label",
            )
        known = known.sort_by([("pool_id", "ascending"), ("candidate", "ascending")])
        ids = known["pool_id"].to_numpy()
        starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
        scores = cls(
            pool_ids=tuple(str(name) for name in ids[starts]),
            logit=known["logit"].to_numpy().astype(np.float64),
            prob=known["prob"].to_numpy().astype(np.float64),
            label=known["label"].to_numpy().astype(np.int64),
            offsets=np.append(starts, len(ids)).astype(np.int64),
            p_none=known[P_NONE].to_numpy()[starts].astype(np.float64) if P_NONE in known.column_names else None,
        )
        _check_scores(scores, known["candidate"].to_numpy())
        return scores

    @classmethod
    def from_lists(
        cls,
        logits: Sequence[Sequence[float]],
        labels: Sequence[Sequence[int]],
        probs: Sequence[Sequence[float]] | None = None,
    ) -> PoolScores:
        """Return pools with one list each, whose names ascend; probabilities are σ(logit) unless given."""
        from scipy.special import expit

        logit = np.concatenate([np.asarray(pool, np.float64) for pool in logits])
        width = len(str(len(logits) - 1))  # so that names ascend
        return cls(
            pool_ids=tuple(f"{index:0{width}}" for index in range(len(logits))),
            logit=logit,
            prob=expit(logit) if probs is None else np.concatenate([np.asarray(pool, np.float64) for pool in probs]),
            label=np.concatenate([np.asarray(pool, np.int64) for pool in labels]),
            offsets=np.cumsum([0, *(len(pool) for pool in logits)]),
        )

    @property
    def num_pools(self) -> int:
        """Number of pools B."""
        return len(self.pool_ids)

    @cached_property
    def pool(self) -> IntArray:
        """Index of each pair's pool, [N]."""
        return np.repeat(np.arange(self.num_pools), self.sizes())

    @cached_property
    def answerable(self) -> npt.NDArray[np.bool_]:
        """Whether each pool has a right candidate, [B]."""
        return self.pool_sum(self.label == 1) > 0

    def sizes(self) -> IntArray:
        """Return the number of candidates of each pool, [B]."""
        return np.diff(self.offsets)

    def subset(self, kept_B: npt.NDArray[np.bool_]) -> PoolScores:
        """Return some of the pools, one or more."""
        kept = kept_B[self.pool]
        return PoolScores(
            pool_ids=tuple(name for name, keep in zip(self.pool_ids, kept_B, strict=True) if keep),
            logit=self.logit[kept],
            prob=self.prob[kept],
            label=self.label[kept],
            offsets=np.append(0, np.cumsum(self.sizes()[kept_B])),
            p_none=None if self.p_none is None else self.p_none[kept_B],
        )

    def split(self, values: npt.NDArray[V]) -> list[npt.NDArray[V]]:
        """Return the values [N] of each pool's candidates, one array for each pool."""
        return np.split(values, self.offsets[1:-1])

    def pool_sum(self, values: npt.NDArray[np.generic]) -> FloatArray:
        """Return sums over each pool's candidates: [N] → [B]."""
        return np.add.reduceat(values.astype(np.float64), self.offsets[:-1])


def ranked_rows(predictions: pa.Table) -> tuple[IntArray, IntArray]:
    """Return the rows of a PREDICTION_SCHEMA table by pool and falling logit [N], and where each pool begins [B].

    Pools are in the order of their ids, and equal logits in that of the table.
    """
    ids = np.array(predictions["pool_id"].to_pylist())
    order = np.lexsort((-predictions["logit"].to_numpy(), ids))
    return order, np.unique(ids[order], return_index=True)[1]


def check_same_pools(runs: Sequence[PoolScores], names: Sequence[str] = ()) -> None:
    """Refuse, by a DataError, to compare runs that were not evaluated on the same pools; `names` are for its message.

    Equal pools have equal ids, and as many candidates with the same labels.
    """
    first, *others = runs
    first_name, *other_names = names or [f"run {number}" for number in range(1, len(runs) + 1)]
    for name, run in zip(other_names, others, strict=True):
        if odd := set(first.pool_ids).symmetric_difference(run.pool_ids):
            found = f"{len(odd)} are in one only, e.g. {min(odd)!r}"
        elif odd := _differently_labelled(first, run):
            found = f"the candidates or labels of {len(odd)} differ, e.g. of {odd[0]!r}"
        else:
            continue
        raise DataError(
            f"{first_name} and {name} were not evaluated on the same pools: {found}",
            "Evaluate the runs on the same pools, then compare them again.",
            field="pool_id",
        )


def _differently_labelled(first: PoolScores, second: PoolScores) -> list[str]:
    """Return the pools, of the same ids, that differ in their number of candidates or in labels."""
    if np.array_equal(first.offsets, second.offsets) and np.array_equal(first.label, second.label):
        return []
    labels = zip(first.pool_ids, first.split(first.label), second.split(second.label), strict=True)
    return [pool_id for pool_id, one, other in labels if not np.array_equal(one, other)]


def _check_columns(predictions: pa.Table) -> None:
    for name in _COLUMNS:
        if name not in predictions.column_names:
            raise DataError(
                f"the predictions lack this column; they have {', '.join(predictions.column_names)}",
                _EVALUATE_AGAIN,
                field=name,
            )
        if nulls := predictions[name].null_count:
            raise DataError(f"{nulls} of {predictions.num_rows} rows are null", _EVALUATE_AGAIN, field=name)


def _drop_unlabelled(predictions: pa.Table) -> pa.Table:
    unknown = predictions.filter(pc.field("label") == -1)["pool_id"].unique()
    return predictions.filter(~pc.field("pool_id").isin(unknown))


def _check_scores(scores: PoolScores, candidate: npt.NDArray[np.generic]) -> None:
    repeated = np.concatenate([[False], (candidate[1:] == candidate[:-1]) & (np.diff(scores.pool) == 0)])
    wrong_pairs = (
        ("candidate", repeated, "occurs twice", "one row for each pool and candidate"),
        ("label", ~np.isin(scores.label, (0, 1)), "has a label other than −1, 0 and 1", "1 right, 0 wrong"),
        ("logit", np.isnan(scores.logit), "has a NaN score", "numbers"),
        ("prob", ~((scores.prob >= 0) & (scores.prob <= 1)), "has no probability", "numbers from 0 to 1"),
    )
    for field, wrong, problem, expected in wrong_pairs:
        if wrong.any():
            pair = int(np.flatnonzero(wrong)[0])
            raise DataError(
                f"candidate {candidate[pair]} of pool {scores.pool_ids[scores.pool[pair]]!r} {problem} "
                f"({int(wrong.sum())} such pairs); expected {expected}",
                _EVALUATE_AGAIN,
                field=field,
            )


def ratio(numerator: FloatArray, denominator: FloatArray, otherwise: float) -> FloatArray:
    """Return numerator / denominator where the denominator is above 0, else `otherwise`; elementwise."""
    return np.divide(numerator, denominator, out=np.full(np.shape(denominator), otherwise), where=denominator > 0)


def pool_softmax(logit_N: FloatArray, sizes_P: IntArray) -> FloatArray:
    """Return the softmax over each pool's candidates, [N]."""
    starts_P = np.cumsum(sizes_P) - sizes_P
    largest_P = np.maximum.reduceat(logit_N, starts_P)
    weight_N = np.exp(logit_N - np.repeat(largest_P, sizes_P))
    return weight_N / np.repeat(np.add.reduceat(weight_N, starts_P), sizes_P)


def sums_to_1(prob_N: FloatArray, sizes_P: IntArray) -> bool:
    """Return whether each pool's probabilities sum to 1, as those of a softmax over it do, up to rounding."""
    sum_P = np.add.reduceat(prob_N, np.cumsum(sizes_P) - sizes_P)
    return bool((np.abs(sum_P - 1) < _SUM_TOLERANCE).all())
