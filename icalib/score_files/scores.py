"""Score files of other rankers, a row for each query and candidate: reading them, adding calibrated probabilities."""

from __future__ import annotations

import codecs
import csv
import json
from array import array
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TextIO, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, FiniteFloat

from icalib.core.component import Settings
from icalib.core.errors import DataError, SettingError
from icalib.core.files import atomic_write, check_other_file
from icalib.core.text import CsvLines
from icalib.data.sources.files import open_bytes, read_lines
from icalib.data.sources.records import Raw, build, refuse_bad_bytes
from icalib.data.sources.rows import Kind, as_json, check_distinct, delimiter_of, kind_of, read_rows, row_of
from icalib.metrics.pairs import FloatArray, IntArray, PoolScores
from icalib.score_files.calibrator import Calibrator, is_probability

S = TypeVar("S", bound="Scored")
N = TypeVar("N", bound="Named")
V = TypeVar("V")
_LABELS = {"1": 1, "1.0": 1, "true": 1, "0": 0, "0.0": 0, "false": 0}  # as JSON, CSV and pandas write them
PROB = "calibrated_prob"
BATCH_ROWS = 1 << 16
_SUFFIXES: dict[Kind, str] = {"parquet": ".parquet", "lines": ".jsonl", "csv": ".csv"}
_MANY_OUTSIDE = 0.05
_CURE = "Correct the row, or remove it"


class Columns(Settings):
    """A score file's own names of the columns that are read."""

    query: str = "query"
    candidate: str = "candidate"
    score: str = "score"
    label: str = "label"


def _number(value: Any) -> Any:
    """Refuse what pydantic takes for a number and no ranker writes: true, which is a label's, and 1_000."""
    if isinstance(value, bool) or (isinstance(value, str) and "_" in value):
        raise ValueError("a number")
    return value


def _name(value: Any) -> Any:
    """Return a whole number as one, since pandas and JavaScript write 17 as 17.0 or not, and refuse a missing one."""
    if isinstance(value, float) and not isfinite(value):
        raise ValueError("a name")
    return int(value) if isinstance(value, float) and value.is_integer() else value


_Name = Annotated[str, Field(min_length=1), BeforeValidator(_name)]


class Scored(BaseModel):
    """What a calibrator is applied to."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    score: Annotated[FiniteFloat, BeforeValidator(_number)]


class Asked(Scored):
    """A score with the name of its query."""

    query: _Name


class Named(Asked):
    """A score with the names of its query and candidate."""

    candidate: _Name


class Labelled(Named):
    """What a calibrator is fitted on."""

    label: Annotated[Literal[0, 1], BeforeValidator(lambda value: _LABELS.get(str(value).lower(), value))]


def read_labelled(path: Path, columns: Columns) -> PoolScores:
    """Read the labelled scores of a file, a pool for each query, sorted by their names, or raise a DataError."""
    pools = _by_query(Labelled, path, columns.model_dump(), lambda pair: (pair.score, pair.label))
    pairs = [pools[query].values() for query in sorted(pools)]
    return PoolScores.from_lists(
        [[score for score, _ in pool] for pool in pairs], [[label for _, label in pool] for pool in pairs]
    )


def read_scores(path: Path, columns: Columns) -> dict[str, dict[str, float]]:
    """Return the scores of a file by query and candidate, or raise a DataError; it needs no labels."""
    return _by_query(Named, path, columns.model_dump(exclude={"label"}), lambda pair: pair.score)


def _by_query(model: type[N], path: Path, names: Mapping[str, str], value: Callable[[N], V]) -> dict[str, dict[str, V]]:
    pools: dict[str, dict[str, V]] = {}
    for raw, row in read_score_rows(path):
        pair = parsed(model, raw, row, names)
        pool = pools.setdefault(pair.query, {})
        if pair.candidate in pool:
            raise raw.error(f"candidate {pair.candidate!r} of query {pair.query!r} occurs twice")
        pool[pair.candidate] = value(pair)
    check_has_rows(path, len(pools))
    return pools


def read_score_rows(path: Path) -> Iterator[tuple[Raw, dict[str, Any]]]:
    """Yield the rows of a score file, or raise a DataError."""
    check_exists(path)
    for raw in read_rows(path):
        raw = replace(raw, cure=_CURE)
        refuse_bad_bytes(raw)
        index = {"": raw.value[""]} if isinstance(raw.value, dict) and "" in raw.value else {}  # as pandas writes it
        yield raw, {**index, **row_of(raw)}


def parsed(model: type[S], raw: Raw, row: Mapping[str, Any], names: Mapping[str, str]) -> S:
    """Return the fields of `model` in a row, `names` being the column of each, or raise a DataError."""
    check_columns(raw.path, raw.line, names.values(), row)
    return build(model, {field: row[name] for field, name in names.items()}, raw, names)


def check_columns(path: Path, line: int, wanted: Iterable[str], found: Collection[str]) -> None:
    """Refuse a row, or a whole file (line 0), that lacks a column."""
    if missing := [name for name in wanted if name not in found]:
        raise DataError(
            f"no column `{missing[0]}` among {', '.join(found)}",
            "Name the right one with --columns, e.g. --columns score=NAME.",
            path=path,
            line=line,
        )


def check_exists(path: Path) -> None:
    """Refuse a score file that doesn't exist."""
    if not path.is_file():
        raise DataError("the file doesn't exist", "Name a file of scores: Parquet, JSONL or CSV.", path=path)


def check_has_rows(path: Path, num_rows: int) -> None:
    """Refuse a score file without rows."""
    if not num_rows:
        raise DataError("the file has no rows", "Expected a row for each query and candidate.", path=path)


@dataclass(frozen=True)
class Applied:
    """What was written; `notes` say how the scores differ from those that the calibrator was fitted on."""

    out: Path
    num_pairs: int
    notes: tuple[str, ...]


def apply(calibrator: Calibrator, scores: Path, out: Path, columns: Columns) -> Applied:
    """Write the rows of a score file with the column `calibrated_prob` to a file of the same format.

    A DataError says that the file or a score can't be used, a SettingError that the name of `out` doesn't fit.
    """
    check_exists(scores)
    kind = kind_of(scores)
    _check_out(scores, out, kind)
    found = _read_new(scores, kind, columns, calibrator)
    check_has_rows(scores, len(found.score))
    prob = _calibrated(calibrator, found, scores, kind, columns)
    with atomic_write(out) as temporary:
        if kind == "parquet":
            _write_parquet(scores, temporary, prob)
        else:
            rows = ({**row, PROB: one} for (_, row), one in zip(read_score_rows(scores), prob.tolist(), strict=True))
            encoding = "utf-8-sig" if _has_mark(scores) else "utf-8"
            # half of a surrogate pair, which JSON can spell and UTF-8 can't, is escaped as JSON has it
            with temporary.open("w", encoding=encoding, errors="backslashreplace", newline="") as file:
                if kind == "csv":
                    _write_csv(file, rows, scores)
                else:
                    file.writelines(_json(row) + "\n" for row in rows)
    return Applied(out, len(prob), tuple(_notes(calibrator, found)))


def _has_mark(path: Path) -> bool:
    """Whether a file begins with the mark by which spreadsheets know that it is UTF-8."""
    with open_bytes(path) as file:
        return file.read(3) == codecs.BOM_UTF8


def _check_out(scores: Path, out: Path, kind: Kind) -> None:
    if kind not in _SUFFIXES:
        raise DataError("found a JSON document", "Write one JSON object a line (JSONL).", path=scores)
    is_tsv = kind == "csv" and scores.name.lower().removesuffix(".gz").endswith(".tsv")
    suffix = ".tsv" if is_tsv else _SUFFIXES[kind]
    if out.suffix != suffix:
        raise SettingError(f"{out}: {scores.name} becomes a file that ends in {suffix}. Name the output so.")
    check_other_file(out, scores, "score file")


class _New(NamedTuple):  # scores to calibrate
    score: FloatArray  # [N]
    query: IntArray | None  # number of each score's query, [N], where probabilities depend on it


def _read_new(path: Path, kind: Kind, columns: Columns, calibrator: Calibrator) -> _New:
    """Read what a calibrator needs of a file; its other columns are read when they are written again."""
    names = columns.model_dump(include={"score", "query"} if calibrator.reads_queries else {"score"})
    scores, queries = array("d"), array("q")
    number: dict[str, int] = {}
    for raw, row in _rows(path, kind, list(names.values())):
        _check_free(path, raw.line, row)
        pair = parsed(Asked if calibrator.reads_queries else Scored, raw, row, names)
        scores.append(pair.score)
        if isinstance(pair, Asked):
            queries.append(number.setdefault(pair.query, len(number)))
    return _New(np.array(scores), np.array(queries) if calibrator.reads_queries else None)


def _calibrated(calibrator: Calibrator, new: _New, path: Path, kind: Kind, columns: Columns) -> FloatArray:
    """Return the calibrated probabilities of a file's rows; a DataError names the first whose score can't be used."""
    try:
        return calibrator.prob(*new)
    except DataError as error:
        wrong = int(np.argmin(is_probability(new.score)))
        raw, _ = next(islice(_rows(path, kind, [columns.score]), wrong, None))
        raise raw.error(error.found, error.cure, columns.score) from None


def _notes(calibrator: Calibrator, new: _New) -> Iterator[str]:
    fitted_range = f"{calibrator.lowest:.4g} to {calibrator.highest:.4g}"
    outside = ((new.score < calibrator.lowest) | (new.score > calibrator.highest)).mean()
    if outside > _MANY_OUTSIDE:
        yield (
            f"{outside:.0%} of the scores are outside of {fitted_range}, the range that the calibrator was fitted "
            "on: don't rely on their probabilities"
        )
    if is_probability(new.score).all() and (calibrator.lowest < -1 or calibrator.highest > 2):
        yield (
            f"all scores are from 0 to 1, but the calibrator was fitted on {fitted_range}: if these are "
            "probabilities and those were not, the calibrated ones are wrong"
        )
    if new.query is not None and calibrator.candidates is not None:
        fewest, most = calibrator.candidates
        size = np.bincount(new.query)
        if (outside := ((size < fewest) | (size > most)).mean()) > _MANY_OUTSIDE:
            fitted_sizes = f"{fewest}" if fewest == most else f"{fewest} to {most}"
            yield (
                f"{outside:.0%} of the queries have another number of candidates than the {fitted_sizes} that the "
                "calibrator was fitted on: a probability depends on the other candidates of its query"
            )


def _write_csv(file: TextIO, rows: Iterator[dict[str, Any]], path: Path) -> None:
    for first in rows:  # of a CSV file, whose rows all have the header's columns
        delimiter = _delimiter_of(path)
        writer = csv.DictWriter(CsvLines(file), list(first), delimiter=delimiter)
        writer.writeheader()
        writer.writerow(first)
        writer.writerows(rows)


def _json(row: dict[str, Any]) -> str:
    """Return a row as JSON, which has no NaN and no infinity: Python reads and writes them, others get null."""
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(json.loads(json.dumps(row), parse_constant=lambda _: None), ensure_ascii=False)


def _delimiter_of(path: Path) -> str:
    """Return the delimiter by which `read_rows` reads a CSV; DataError if two columns have one name."""
    header = next(read_lines(path))
    delimiter = delimiter_of(header.text)
    names = next(csv.reader((f"{raw.text}\n" for raw in read_lines(path)), delimiter=delimiter))
    check_distinct(path, header.line, (name.strip() for name in names))
    return delimiter


def _rows(path: Path, kind: Kind, names: list[str]) -> Iterator[tuple[Raw, dict[str, Any]]]:
    """Yield a file's rows, of a Parquet file the named columns alone, or raise a DataError."""
    return _parquet_rows(path, names) if kind == "parquet" else read_score_rows(path)


def _parquet_rows(path: Path, names: list[str]) -> Iterator[tuple[Raw, dict[str, Any]]]:
    with _reading(path):
        schema = pq.read_schema(path)
    check_distinct(path, 0, schema.names)
    check_columns(path, 0, names, schema.names)
    _check_free(path, 0, schema.names)
    rows = (row for batch in _parquet_batches(path, names) for row in batch.to_pylist())
    for number, row in enumerate(rows, 1):
        yield Raw(path, number, "", cure=_CURE), as_json(row)


def _write_parquet(path: Path, out: Path, prob: FloatArray) -> None:
    added = pa.field(PROB, pa.float64())
    start = 0
    with pq.ParquetWriter(out, pq.read_schema(path).append(added)) as writer:
        for batch in _parquet_batches(path):
            stop = start + batch.num_rows
            writer.write_batch(batch.append_column(added, pa.array(prob[start:stop])))
            start = stop


def _parquet_batches(path: Path, names: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    with _reading(path), pq.ParquetFile(path) as file:
        yield from file.iter_batches(batch_size=BATCH_ROWS, columns=names)


@contextmanager
def _reading(path: Path) -> Generator[None, None, None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"damaged ({error})", "Get the file again, or write it again.", path=path) from error


def _check_free(path: Path, line: int, names: Collection[str]) -> None:
    if PROB in names:
        raise DataError(
            f"has a column {PROB} already",
            "Rename it, or apply the calibrator to the original file.",
            path=path,
            line=line,
        )
