"""Apply a calibrator to a score file of any size, in bounded memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from icalib.core.errors import DataError, SettingError
from icalib.core.files import whole_file
from icalib.external.calibrator import Calibrator
from icalib.external.rows import Rows
from icalib.external.score_file import ScoreFile
from icalib.metrics.pairs import IntArray, PoolScores

PROB, ACCEPTED, IN_SET = "calibrated_prob", "accepted", "in_set"
_MANY_OUTSIDE = 0.5
_SOME_OUTSIDE = 0.05


@dataclass(frozen=True)
class Applied:
    """What was written.

    Attributes:
        out: the file.
        num_pairs: its pairs.
        notes: sentences for people: how the scores differ from those that the calibrator was fitted on.
    """

    out: Path
    num_pairs: int
    notes: tuple[str, ...]


@dataclass
class _Facts:
    """What the first pass over a file finds."""

    num_pairs: int = 0
    num_outside: int = 0
    num_between_0_and_1: int = 0
    num_odd_pools: int = 0
    num_pools: int = 0


def apply(calibrator: Calibrator, file: ScoreFile, out: Path, *, sets: bool = True, any_range: bool = False) -> Applied:
    """Write the rows of a score file with calibrated probabilities.

    Added are `calibrated_prob`; `accepted`, where the calibrator has a threshold; and `in_set`, where it has answer
    sets. The file is read twice: nothing is written for scores that don't fit.

    Args:
        calibrator: see `Calibrator`.
        file: the scores; the pairs of a pool must follow one another where a probability or a set depends on the pool.
        out: a Parquet file for one, else JSONL.
        sets: add answer sets.
        any_range: accept scores from another range than that of the calibrator, and say so.

    Raises:
        DataError: the scores don't fit the calibrator, or a pool's pairs are apart.
        SettingError: the name of `out`, or a column of that name exists.
    """
    with_sets = sets and calibrator.sets is not None
    whole_pools = with_sets or calibrator.needs_pools
    added = [PROB, *([ACCEPTED] if calibrator.acceptance else []), *([IN_SET] if with_sets else [])]
    _check_out(file, out, added)
    notes = _check_fits(calibrator, file, _examined(calibrator, file, whole_pools), any_range)
    num_pairs = 0
    with whole_file(out) as temporary, ExitStack() as stack:
        writer: Any = None
        for rows in _in_whole_pools(file.batches()) if whole_pools and not file.lists else file.batches():
            if writer is None:
                writer = _Writer(file, temporary, added, stack)
            writer.write(rows, _columns(calibrator, rows, added))
            num_pairs += rows.num_pairs
    return Applied(out, num_pairs, notes)


def _check_out(file: ScoreFile, out: Path, added: Sequence[str]) -> None:
    expected = ".parquet" if file.kind == "parquet" else ".jsonl"
    if out.suffix != expected:
        raise SettingError(f"{out}: {file.path.name} becomes a file that ends in {expected}. Name the output so.")
    if out.exists() and out.samefile(file.path):
        raise SettingError(f"{out} is the score file itself. Name another file for the output.")
    names = file.schema.names if file.kind == "parquet" else ()
    if taken := [name for name in added if name in names]:
        raise SettingError(f"{file.path} has a column {taken[0]} already. Rename it, or apply to the original file.")


def _examined(calibrator: Calibrator, file: ScoreFile, whole_pools: bool) -> _Facts:
    """Read the file once, and refuse what can't be calibrated.

    Of each pool 8 bytes are kept, to notice one whose pairs are apart.
    """
    facts, fitted = _Facts(), calibrator.fitted_on
    seen: list[int] = []
    last, size = "", 0
    for rows in file.batches(whole=False):
        score = rows.score
        between = (score >= 0) & (score <= 1)
        if calibrator.scale == "probability" and not between.all():
            raise DataError(
                f"found the score {score[~between][0]:g}; the calibrator was fitted on probabilities from 0 to 1",
                "Apply it to scores of the same ranker, returned in the same way, or fit another calibrator.",
                path=file.path,
            )
        facts.num_pairs += rows.num_pairs
        facts.num_outside += int(((score < fitted.lowest) | (score > fitted.highest)).sum())
        facts.num_between_0_and_1 += int(between.sum())
        if not rows.num_pairs:
            continue
        starts = rows.starts()
        for start, end in zip(starts, [*starts[1:], rows.num_pairs], strict=True):
            name = rows.pool[start]
            if name != last or not facts.num_pools:
                facts.num_odd_pools += _is_odd(size, calibrator)
                facts.num_pools += 1
                size = 0
                seen.append(int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little"))
            last, size = name, size + int(end - start)
    facts.num_odd_pools += _is_odd(size, calibrator)
    if not facts.num_pairs:
        raise DataError("the file has no rows", "Name a file with scores.", path=file.path)
    if whole_pools and len(np.unique(np.array(seen, np.uint64))) < len(seen):
        raise DataError(
            "the pairs of a pool are not together, and its probabilities or answer sets depend on all of them",
            "Sort the file by its pools; without answer sets (--no-sets) most calibrators need no order.",
            path=file.path,
        )
    return facts


def _is_odd(size: int, calibrator: Calibrator) -> bool:
    """Whether a pool has another number of candidates than any that the calibrator was fitted on."""
    fitted = calibrator.fitted_on
    return size > 0 and not fitted.fewest_candidates <= size <= fitted.most_candidates


def _check_fits(calibrator: Calibrator, file: ScoreFile, facts: _Facts, any_range: bool) -> tuple[str, ...]:
    """Return what differs from the scores that the calibrator was fitted on.

    Raises:
        DataError: most scores are from another range, and `any_range` is false.
    """
    fitted, notes = calibrator.fitted_on, list[str]()
    fraction = facts.num_outside / facts.num_pairs
    seem_probs = facts.num_between_0_and_1 == facts.num_pairs and calibrator.scale == "logit"
    spans_more = fitted.lowest < -1 or fitted.highest > 2
    found = f"{fraction:.0%} of the scores are outside of {fitted.lowest:.4g} to {fitted.highest:.4g}, the range "
    found += "that the calibrator was fitted on"
    if seem_probs and spans_more:
        found = f"all scores are from 0 to 1, but the calibrator was fitted on {fitted.lowest:.4g} to "
        found += f"{fitted.highest:.4g}: these seem to be probabilities, and those were not"
    if fraction > _MANY_OUTSIDE or (seem_probs and spans_more):
        if not any_range:
            raise DataError(
                found,
                "Apply it to scores of the same ranker, returned in the same way, or fit another calibrator; "
                "--any-range applies it all the same.",
                path=file.path,
                field=file.columns["score"],
            )
        notes.append(f"{found}: the probabilities can't be trusted.")
    elif fraction > _SOME_OUTSIDE:
        notes.append(f"{found}: probabilities at the ends may be wrong.")
    if facts.num_odd_pools:
        sizes = f"{fitted.fewest_candidates} to {fitted.most_candidates}"
        notes.append(
            f"{facts.num_odd_pools} of {facts.num_pools} pools have another number of candidates than the {sizes} that "
            "the calibrator was fitted on: where there are more wrong ones, probabilities are too high."
        )
    return tuple(notes)


def _in_whole_pools(batches: Iterator[Rows]) -> Iterator[Rows]:
    """Yield the same rows such that each pool is in one batch."""
    rest: Rows | None = None
    for rows in batches:
        joined = rows if rest is None else rest.joined(rows)
        complete, rest = joined.cut(int(joined.starts()[-1]))
        if complete.num_pairs:
            yield complete
    if rest is not None:
        yield rest


def _columns(calibrator: Calibrator, rows: Rows, added: Sequence[str]) -> dict[str, Any]:
    """Return the added columns, [N] each."""
    offsets = _offsets(rows)
    prob = calibrator.prob(rows.score, offsets)
    columns: dict[str, Any] = {PROB: prob}
    if calibrator.acceptance is not None:
        columns[ACCEPTED] = prob >= calibrator.acceptance.prob
    if IN_SET in added:
        assert calibrator.sets is not None
        pools = PoolScores(("",) * (len(offsets) - 1), rows.score, prob, np.zeros(len(prob), np.int64), offsets)
        columns[IN_SET] = calibrator.sets.contain(pools, calibrator.logit(rows.score))
    return columns


def _offsets(rows: Rows) -> IntArray:
    if rows.sizes is None:
        return np.append(rows.starts(), rows.num_pairs).astype(np.int64)
    sizes = rows.sizes[rows.sizes > 0]
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


class _Writer:
    """Writes rows with further columns, as Parquet or JSONL."""

    def __init__(self, file: ScoreFile, path: Path, added: Sequence[str], stack: ExitStack) -> None:
        self._text: Any = None
        if file.kind != "parquet":
            self._text = stack.enter_context(path.open("w", encoding="utf-8"))
            return
        types = {name: pa.float64() if name == PROB else pa.bool_() for name in added}
        fields = [pa.field(name, pa.list_(kind) if file.lists else kind) for name, kind in types.items()]
        self._schema = pa.schema([*file.schema, *fields], metadata=file.schema.metadata)
        self._parquet = stack.enter_context(pq.ParquetWriter(path, self._schema))

    def write(self, rows: Rows, columns: dict[str, Any]) -> None:
        """Write a batch."""
        if isinstance(rows.records, list):
            values = {name: _per_row(column, rows.sizes) for name, column in columns.items()}
            for index, record in enumerate(rows.records):
                record = record | {name: column[index] for name, column in values.items()}
                self._text.write(json.dumps(record, ensure_ascii=False) + "\n")
            return
        arrays = [_array(column, rows.sizes) for column in columns.values()]
        table = pa.table([*rows.records.columns, *arrays], schema=self._schema)
        self._parquet.write_table(table)


def _per_row(column: Any, sizes: IntArray | None) -> list[Any]:
    if sizes is None:
        return column.tolist()
    return [part.tolist() for part in np.split(column, np.cumsum(sizes)[:-1])]


def _array(column: Any, sizes: IntArray | None) -> Any:
    values = pa.array(column)
    if sizes is None:
        return values
    return pa.ListArray.from_arrays(pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32()), values)
