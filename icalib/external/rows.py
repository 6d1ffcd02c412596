"""Rows of score files: which columns are read, and scores and labels as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from icalib.core.errors import DataError
from icalib.core.invalid import abbreviated
from icalib.data.sources.question import parsed_number
from icalib.data.sources.records import Raw
from icalib.metrics.pairs import FloatArray, IntArray

COMMON: Mapping[str, tuple[str, ...]] = {
    "pool": ("poolid", "queryid", "qid", "questionid", "groupid", "pool", "query", "question", "group", "id"),
    "candidate": ("candidateid", "candidate", "docid", "documentid", "corpusid", "passageid", "pid", "doc", "document"),
    "score": (
        *("score", "scores", "logit", "logits", "relevancescore", "relevancescores", "prob", "probs", "probability"),
        *("probabilities", "similarity", "similarities", "rerankscore", "prediction", "predictions"),
    ),
    "label": ("label", "labels", "relevance", "relevances", "relevant", "rel", "gold", "isrelevant", "target"),
}
"""What a column can be, with its usual names."""
UNKNOWN = -1
"""Label of a pair that nobody has judged."""
CURE = "Correct the row, or remove it"
_TRUTH: Mapping[str, int] = {"true": 1, "false": 0}


@dataclass(frozen=True, eq=False)
class Rows:
    """Consecutive rows of a score file, N pairs in all.

    Attributes:
        records: the rows as they are in the file.
        pool: [N], the pool of each pair.
        candidate: [N], the candidate of each pair; None where the file has no such column.
        score: [N].
        label: [N], 1 right, 0 wrong, −1 unknown; None where the file has no labels.
        sizes: the number of pairs of each row; None where a row is a pair.
    """

    records: pa.Table | list[dict[str, Any]]
    pool: list[str]
    candidate: list[str] | None
    score: FloatArray
    label: IntArray | None
    sizes: IntArray | None

    @property
    def num_pairs(self) -> int:
        """N."""
        return len(self.pool)

    def starts(self) -> IntArray:
        """Return the index of the first pair of each run of one pool's pairs."""
        pool = np.array(self.pool, dtype=object)
        return np.flatnonzero(np.concatenate([[True], pool[1:] != pool[:-1]]))

    def cut(self, at: int) -> tuple[Rows, Rows]:
        """Return the rows before and from an index, of rows that are pairs."""
        return self._part(0, at), self._part(at, self.num_pairs)

    def _part(self, start: int, end: int) -> Rows:
        records = self.records
        return Rows(
            records=records[start:end] if isinstance(records, list) else records.slice(start, end - start),
            pool=self.pool[start:end],
            candidate=None if self.candidate is None else self.candidate[start:end],
            score=self.score[start:end],
            label=None if self.label is None else self.label[start:end],
            sizes=None,
        )

    def joined(self, after: Rows) -> Rows:
        """Return these rows followed by others, of rows that are pairs."""
        if isinstance(self.records, list):
            records: Any = [*self.records, *after.records]
        else:
            records = pa.concat_tables([self.records, after.records])
        return Rows(
            records=records,
            pool=self.pool + after.pool,
            candidate=None if self.candidate is None or after.candidate is None else self.candidate + after.candidate,
            score=np.concatenate([self.score, after.score]),
            label=None if self.label is None or after.label is None else np.concatenate([self.label, after.label]),
            sizes=None,
        )


def rows_of_table(table: pa.Table, columns: Mapping[str, str], path: Any, first: int) -> Rows:
    """Return the rows of a Parquet file.

    Args:
        table: some of its rows.
        columns: its own names of the columns that are read.
        path: the file, for messages.
        first: number of rows before these.

    Raises:
        DataError: a score that is no finite number, or lists of different lengths.
    """
    score = table[columns["score"]].combine_chunks()
    sizes = None
    if pa.types.is_list(score.type) or pa.types.is_large_list(score.type):
        sizes = _lengths(score)
        score = score.flatten()
    values = _floats(score, path, columns["score"])
    row_of_pair = np.arange(table.num_rows) if sizes is None else np.repeat(np.arange(table.num_rows), sizes)
    _check_finite(values, row_of_pair + first + 1, path, columns["score"])
    pool = [f"{first + row + 1}" for row in range(table.num_rows)]
    if "pool" in columns:
        pool = [str(name) for name in table[columns["pool"]].to_pylist()]
    label = None
    if "label" in columns:
        label = _table_labels(table[columns["label"]].combine_chunks(), sizes, path, columns["label"], first)
    candidate = None
    if "candidate" in columns and sizes is None:
        candidate = [str(name) for name in table[columns["candidate"]].to_pylist()]
    return Rows(table, [pool[row] for row in row_of_pair], candidate, values, label, sizes)


def _floats(array: Any, path: Any, name: str) -> FloatArray:
    if not (pa.types.is_floating(array.type) or pa.types.is_integer(array.type) or pa.types.is_decimal(array.type)):
        raise DataError(
            f"found values of type {array.type}, expected numbers",
            "Name the right column with --columns score=NAME.",
            path=path,
            field=name,
        )
    return array.cast(pa.float64()).to_numpy(zero_copy_only=False).astype(np.float64)


def _check_finite(score: FloatArray, row: IntArray, path: Any, name: str) -> None:
    if (bad := np.flatnonzero(~np.isfinite(score))).size:
        raise DataError(
            f"found {score[bad[0]]:g} ({bad.size} such scores), expected a finite number",
            f"{CURE}.",
            path=path,
            line=int(row[bad[0]]),
            field=name,
        )


def _table_labels(label: Any, sizes: IntArray | None, path: Any, name: str, first: int) -> IntArray:
    is_list = pa.types.is_list(label.type) or pa.types.is_large_list(label.type)
    values = label.flatten() if is_list else label
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    elif not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        raise DataError(
            f"found values of type {values.type}, expected numbers (above 0: right) or booleans",
            "Name the right column with --columns label=NAME.",
            path=path,
            field=name,
        )
    number = values.cast(pa.float64()).to_numpy(zero_copy_only=False).astype(np.float64)
    if sizes is None:
        return _known(number)
    if is_list:
        _check_lengths(_lengths(label), sizes, path, name, first)
        return _known(number)
    return _from_index(np.where(np.isnan(number), UNKNOWN, number).astype(np.int64), sizes)


def _lengths(lists: Any) -> IntArray:
    """Return the lengths of lists; a missing one has none."""
    return lists.value_lengths().fill_null(0).to_numpy().astype(np.int64)


def _check_lengths(lengths: IntArray, sizes: IntArray, path: Any, name: str, first: int) -> None:
    if (wrong := np.flatnonzero(lengths != sizes)).size:
        row = int(wrong[0])
        raise DataError(
            f"found {lengths[row]} labels and {sizes[row]} scores",
            "A row needs as many labels as scores, or the index of the right candidate.",
            path=path,
            line=first + row + 1,
            field=name,
        )


def _known(number: FloatArray) -> IntArray:
    """Return 1 for a relevance above 0, 0 for 0, −1 for what is missing or negative."""
    return np.where(np.isnan(number) | (number < 0), UNKNOWN, number > 0).astype(np.int64)


def _from_index(right: IntArray, sizes: IntArray) -> IntArray:
    """Return labels of pairs from the index of each pool's right candidate; −1: unknown."""
    start = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    position = np.arange(int(sizes.sum())) - np.repeat(start, sizes)
    chosen = np.repeat(right, sizes)
    return np.where(chosen < 0, UNKNOWN, position == chosen).astype(np.int64)


def rows_of_records(raws: Sequence[tuple[Raw, dict[str, Any]]], columns: Mapping[str, str]) -> Rows:
    """Return rows of a text file.

    Raises:
        DataError: a row without a finite score, or with another number of labels than scores.
    """
    lists = isinstance(raws[0][1].get(columns["score"]), list)
    read = [_record(raw, row, columns, lists) for raw, row in raws]
    sizes = np.array([len(score) for _, _, score, _ in read], np.int64)
    pairs = [(pool, candidate) for pool, candidate, score, _ in read for _ in score]
    return Rows(
        records=[row for _, row in raws],
        pool=[pool for pool, _ in pairs],
        candidate=[name for _, name in pairs] if "candidate" in columns and not lists else None,
        score=np.array([number for _, _, score, _ in read for number in score], np.float64),
        label=np.array([one for *_, label in read for one in label], np.int64) if "label" in columns else None,
        sizes=sizes if lists else None,
    )


def _record(
    raw: Raw, row: Mapping[str, Any], columns: Mapping[str, str], lists: bool
) -> tuple[str, str, list[float], list[int]]:
    pool = row.get(columns["pool"]) if "pool" in columns else raw.number or raw.line
    if pool is None or pool == "":
        raise raw.error("found no pool", field=columns["pool"])
    values = row.get(columns["score"])
    if lists != isinstance(values, list):
        raise raw.error(f"found {abbreviated(values)}, expected {'a list' if lists else 'a number'}", field="score")
    listed: list[Any] = values if isinstance(values, list) else [values]
    score = [_number(raw, value, columns["score"]) for value in listed]
    label = list(_labels(raw, row.get(columns["label"]), len(score), lists)) if "label" in columns else []
    return str(pool), str(row.get(columns.get("candidate", ""), "")), score, label


def _labels(raw: Raw, value: Any, size: int, lists: bool) -> Iterator[int]:
    if lists and not isinstance(value, list):
        right = -1 if value is None else int(_number(raw, value, "label"))
        yield from (UNKNOWN if right < 0 else int(index == right) for index in range(size))
        return
    values: list[Any] = value if isinstance(value, list) else [value]
    if len(values) != size:
        raise raw.error(f"found {len(values)} labels and {size} scores", field="label")
    for one in values:
        number = parsed_number(_TRUTH.get(str(one).lower(), one))
        yield UNKNOWN if number is None or number < 0 else int(number > 0)


def _number(raw: Raw, value: Any, field: str) -> float:
    number = None if isinstance(value, bool) else parsed_number(value)
    if number is None or not np.isfinite(number):
        raise raw.error(f"found {abbreviated(value)}, expected a finite number", field=field)
    return number
