"""Score files of other rankers: Parquet, JSONL, CSV or a TREC run, read in batches of bounded size."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from icalib.core.errors import DataError, SettingError
from icalib.data.sources.arrow_rows import PARQUET_MAGIC
from icalib.data.sources.columns import NO_COLUMNS, check_columns, described, guessed_columns
from icalib.data.sources.files import first_line, read_lines
from icalib.data.sources.question import LONE_SURROGATE, parsed_number
from icalib.data.sources.records import Raw, refuse_bad_bytes
from icalib.data.sources.rows import read_rows, row_of, sample_rows
from icalib.external.rows import COMMON, CURE, Rows, rows_of_records, rows_of_table

BATCH_ROWS = 1 << 14
_RUN_FIELDS = 6
_TREC_COLUMNS = {"pool": "pool_id", "candidate": "candidate_id", "score": "score"}


@dataclass(frozen=True)
class ScoreFile:
    """An opened score file.

    Attributes:
        path: the file.
        kind: how it is read.
        columns: its own names of the columns that are read, by what they are: pool, candidate, score, label.
        lists: whether a row is a pool with lists of scores, and not a pair.
        understood: one line for the user: which columns are read.
    """

    path: Path
    kind: Literal["parquet", "rows", "trec"]
    columns: Mapping[str, str]
    lists: bool
    understood: str

    @classmethod
    def open(cls, path: Path, given: Mapping[str, str] = NO_COLUMNS) -> ScoreFile:
        """Open a file.

        Args:
            path: Parquet, JSONL, JSON, CSV or TSV (the last four also gzipped), or a TREC run.
            given: the user's choice of columns; the others are guessed.

        Raises:
            DataError: the file is missing, empty or damaged.
            SettingError: a column isn't found.
        """
        if not path.is_file():
            raise DataError("the file doesn't exist", "Name a file of scores: Parquet, JSONL or a TREC run.", path=path)
        with path.open("rb") as file:
            is_parquet = file.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC
        if is_parquet:
            with _parquet(path) as parquet:
                schema = parquet.schema_arrow
            columns = _columns(path, schema.names, given)
            score = schema.field(columns["score"]).type
            return cls._of(path, "parquet", columns, pa.types.is_list(score) or pa.types.is_large_list(score), given)
        if _is_trec(path):
            return cls(path, "trec", _TREC_COLUMNS, lists=False, understood="a TREC run")
        rows = sample_rows(path)
        columns = _columns(path, list(dict.fromkeys(name for row in rows for name in row)), given)
        return cls._of(path, "rows", columns, isinstance(rows[0].get(columns["score"]), list), given)

    @classmethod
    def _of(
        cls,
        path: Path,
        kind: Literal["parquet", "rows"],
        columns: Mapping[str, str],
        lists: bool,
        given: Mapping[str, str],
    ) -> ScoreFile:
        if "pool" not in columns and not lists:
            check_columns(path, list(columns.values()), COMMON, columns, ("pool",), {})
        row = "a row is a pool" if lists else "a row is a pair"
        return cls(path, kind, columns, lists, f"{described(columns, given)}; {row}")

    @property
    def schema(self) -> pa.Schema:
        """Columns and types of a Parquet file."""
        with _parquet(self.path) as parquet:
            return parquet.schema_arrow

    def batches(self, *, whole: bool = True) -> Iterator[Rows]:
        """Yield the rows in order, at most BATCH_ROWS at a time.

        Args:
            whole: read all columns of a Parquet file into `Rows.records`, and not only those that are needed.

        Raises:
            DataError: a damaged file, or a row that can't be read.
        """
        if self.kind == "parquet":
            yield from self._parquet_batches(None if whole else list(self.columns.values()))
            return
        raws = (replace(raw, cure=CURE) for raw in self._raws())
        pairs = ((raw, _trec_row(raw) if self.kind == "trec" else _checked_row(raw)) for raw in raws)
        while batch := list(islice(pairs, BATCH_ROWS)):
            yield rows_of_records(batch, self.columns)

    def _raws(self) -> Iterable[Raw]:
        return read_lines(self.path) if self.kind == "trec" else read_rows(self.path)

    def _parquet_batches(self, names: list[str] | None) -> Iterator[Rows]:
        first = 0
        with _parquet(self.path) as parquet:
            try:
                for batch in parquet.iter_batches(batch_size=BATCH_ROWS, columns=names):
                    yield rows_of_table(pa.table(batch), self.columns, self.path, first)
                    first += batch.num_rows
            except (pa.ArrowException, OSError) as error:
                raise _damaged(self.path, error, first) from error


def _parquet(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error, 0) from error


def _damaged(path: Path, error: Exception, row: int) -> DataError:
    return DataError(f"damaged ({error})", "Get the file again, or write it again.", path=path, line=row)


def _columns(path: Path, names: list[str], given: Mapping[str, str]) -> dict[str, str]:
    found = guessed_columns(names, COMMON, given)
    check_columns(path, names, COMMON, found, ("score",), given)
    return found


def _is_trec(path: Path) -> bool:
    fields = first_line(path).split()
    return len(fields) == _RUN_FIELDS and all(parsed_number(field) is not None for field in fields[3:5])


def _trec_row(raw: Raw) -> dict[str, Any]:
    refuse_bad_bytes(raw)
    fields = raw.text.split()
    if len(fields) != _RUN_FIELDS:
        raise raw.error(f"found {len(fields)} fields, expected 6: query-id Q0 text-id rank score tag")
    return {"pool_id": fields[0], "candidate_id": fields[2], "rank": fields[3], "score": fields[4], "tag": fields[5]}


def _checked_row(raw: Raw) -> dict[str, Any]:
    refuse_bad_bytes(raw)
    row = row_of(raw)
    if "\\u" in raw.text:
        try:
            json.dumps(row, ensure_ascii=False).encode()
        except UnicodeEncodeError:  # no file could hold the row with its probability
            raise raw.error(LONE_SURROGATE) from None
    return row


def read_qrels(path: Path) -> dict[str, dict[str, int]]:
    """Return the judgements of each query: 1 for a relevance above 0, else 0.

    A line is `query-id 0 text-id relevance` (TREC) or `query-id text-id relevance` (BEIR, with or without a header).

    Raises:
        DataError: the file is missing or empty, or a line can't be read.
    """
    if not path.is_file():
        raise DataError("the file doesn't exist", "Name the judgements of the run: a file of qrels.", path=path)
    found: dict[str, dict[str, int]] = {}
    for raw in read_lines(path, CURE):
        refuse_bad_bytes(raw)
        fields = raw.text.split()
        relevance = parsed_number(fields[-1])
        if relevance is None and not found:
            continue  # a header
        if len(fields) not in (3, 4) or relevance is None:
            raise raw.error(
                f"found {len(fields)} fields, expected `query-id 0 text-id relevance` or `query-id text-id relevance`"
            )
        found.setdefault(fields[0], {})[fields[-2]] = int(relevance > 0)
    if not found:
        raise DataError("found no judgement", "Expected lines of query-id 0 text-id relevance.", path=path)
    return found


def check_judged(file: ScoreFile, qrels: Path | None) -> None:
    """Refuse a score file whose labels can't be known.

    Raises:
        SettingError: it has no labels and there are no qrels, or qrels and no candidates.
    """
    if qrels is not None and "candidate" not in file.columns:
        raise SettingError(
            f"{file.path} has no column of candidates, by which judgements are found. Name it with "
            "--columns candidate=NAME, or leave --qrels out."
        )
    if qrels is None and "label" not in file.columns:
        raise SettingError(
            f"{file.path} has no labels, without which nothing can be calibrated ({file.understood}). Name their "
            "column with --columns label=NAME, or a file of judgements with --qrels."
        )
