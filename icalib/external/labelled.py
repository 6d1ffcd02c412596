"""Labelled pools from score files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from icalib.core.errors import DataError
from icalib.external.rows import UNKNOWN, Rows
from icalib.external.score_file import ScoreFile, check_judged, read_qrels
from icalib.metrics.pairs import FloatArray, IntArray, PoolScores


@dataclass(frozen=True, eq=False)
class LabelledPools:
    """Pools whose labels are known, with or without a right candidate.

    Attributes:
        pools: scores as `logit`; probabilities are not yet known and are NaN.
        num_unlabelled: pools that were left out, since the label of a candidate is unknown.
    """

    pools: PoolScores
    num_unlabelled: int


def read_labelled(file: ScoreFile, qrels: Path | None = None) -> LabelledPools:
    """Read all pools of a score file.

    With judgements a candidate that is not judged is wrong, and a pool without a judgement is unlabelled.

    Args:
        file: the scores.
        qrels: file of judgements; None: the labels are in the score file.

    Raises:
        DataError: a row can't be read, a candidate occurs twice in a pool, or no pool is labelled.
        SettingError: see `check_judged`.
    """
    check_judged(file, qrels)
    batches = list(file.batches(whole=False))
    if not batches:
        raise DataError("the file has no rows", "Name a file with scores.", path=file.path)
    labels = [batch.label for batch in batches]
    if qrels is not None:
        judged = read_qrels(qrels)
        labels = [_judged(batch, judged) for batch in batches]
    pool = [name for batch in batches for name in batch.pool]
    candidates = [batch.candidate for batch in batches]
    score = np.concatenate([batch.score for batch in batches])
    label = np.concatenate([one for one in labels if one is not None])
    if "candidate" in file.columns and not file.lists:
        _check_distinct(file, pool, [name for names in candidates for name in names or ()])
    return labelled_pools(pool, score, label, file.path)


def _judged(rows: Rows, judged: dict[str, dict[str, int]]) -> IntArray:
    assert rows.candidate is not None  # see check_judged
    pairs = zip(rows.pool, rows.candidate, strict=True)
    return np.array([judged[pool].get(name, 0) if pool in judged else UNKNOWN for pool, name in pairs], np.int64)


def _check_distinct(file: ScoreFile, pool: Sequence[str], candidate: Sequence[str]) -> None:
    seen: set[tuple[str, str]] = set()
    for pair in zip(pool, candidate, strict=True):
        if pair in seen:
            raise DataError(
                f"candidate {pair[1]!r} of pool {pair[0]!r} occurs twice",
                "Expected one row for each pool and candidate. Name the right columns with --columns, or leave "
                "repeated rows out.",
                path=file.path,
                field=file.columns["candidate"],
            )
        seen.add(pair)


def labelled_pools(pool: Sequence[str], score: FloatArray, label: IntArray, path: str | Path) -> LabelledPools:
    """Group pairs by pool, in ascending order of the pools' names, and leave out those with an unknown label.

    Raises:
        DataError: no pool is labelled.
    """
    names, index = np.unique(np.array(pool, dtype=object), return_inverse=True)
    order = np.argsort(index, kind="stable")
    unlabelled = np.zeros(len(names), bool)
    unlabelled[index[label == UNKNOWN]] = True
    order = order[~unlabelled[index[order]]]
    if not order.size:
        raise DataError(
            f"none of the {len(names)} pools has known labels for all its candidates",
            "Calibration needs labelled pools: 1 or true for a right candidate, 0 or false for a wrong one.",
            path=path,
        )
    kept = index[order]
    starts = np.flatnonzero(np.concatenate([[True], kept[1:] != kept[:-1]]))
    pools = PoolScores(
        pool_ids=tuple(str(name) for name in names[~unlabelled]),
        logit=score[order],
        prob=np.full(len(order), np.nan),
        label=label[order],
        offsets=np.append(starts, len(order)).astype(np.int64),
    )
    return LabelledPools(pools, int(unlabelled.sum()))
