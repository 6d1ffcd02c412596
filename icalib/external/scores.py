"""Score files of other rankers: Parquet, JSONL or CSV with a row for each query and candidate."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, FiniteFloat

from icalib.core.component import Settings
from icalib.core.errors import DataError
from icalib.data.sources.records import Raw, build, refuse_bad_bytes
from icalib.data.sources.rows import read_rows, row_of
from icalib.metrics.pairs import PoolScores

S = TypeVar("S", bound="Scored")
_LABELS = {"1": 1, "1.0": 1, "true": 1, "0": 0, "0.0": 0, "false": 0}  # as JSON, CSV and pandas write them


class Columns(Settings):
    """A score file's own names of the columns that are read."""

    query: str = "query"
    candidate: str = "candidate"
    score: str = "score"
    label: str = "label"


class Scored(BaseModel):
    """What a calibrator is applied to."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    score: FiniteFloat


class Labelled(Scored):
    """What a calibrator is fitted on."""

    query: str = Field(min_length=1)
    candidate: str = Field(min_length=1)
    label: Annotated[Literal[0, 1], BeforeValidator(lambda value: _LABELS.get(str(value).lower(), value))]
    """1 right, 0 wrong."""


def read_labelled(path: Path, columns: Columns) -> PoolScores:
    """Read the labelled scores of a file: a pool for each query, in ascending order of their names, or raise a
    DataError.
    """
    names = columns.model_dump()
    pools: dict[str, dict[str, tuple[float, int]]] = {}
    for raw, row in read_score_rows(path):
        pair = parsed(Labelled, raw, row, names)
        pool = pools.setdefault(pair.query, {})
        if pair.candidate in pool:
            raise raw.error(f"candidate {pair.candidate!r} of query {pair.query!r} occurs twice")
        pool[pair.candidate] = pair.score, pair.label
    check_has_rows(path, len(pools))
    pairs = [pools[query].values() for query in sorted(pools)]
    return PoolScores.from_lists(
        [[score for score, _ in pool] for pool in pairs], [[label for _, label in pool] for pool in pairs]
    )


def read_score_rows(path: Path) -> Iterator[tuple[Raw, dict[str, Any]]]:
    """Yield the rows of a score file, or raise a DataError."""
    check_exists(path)
    for raw in read_rows(path):
        raw = replace(raw, cure="Correct the row, or remove it")
        refuse_bad_bytes(raw)
        yield raw, row_of(raw)


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
