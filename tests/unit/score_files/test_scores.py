from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from helpers.scored_pools import score_rows, scored_pools, write_scores

from icalib.core.errors import DataError
from icalib.score_files.scores import Columns, read_labelled

POOLS = scored_pools(40)
ROWS = score_rows(POOLS)
COLUMNS = Columns()


@pytest.mark.parametrize("name", ["scores.parquet", "scores.jsonl", "scores.csv"])
def test_all_formats_have_the_same_scores(tmp_path: Path, name: str) -> None:
    rows = ROWS.copy()
    random.Random(0).shuffle(rows)
    found = read_labelled(write_scores(tmp_path / name, rows), COLUMNS)
    assert found.offsets.tolist() == POOLS.offsets.tolist()
    for one, expected in ((found.logit, POOLS.logit), (found.label, POOLS.label)):
        assert [sorted(part) for part in found.split(one)] == [sorted(part) for part in POOLS.split(expected)]


@pytest.mark.parametrize("right", [1, 1.0, True, "1", "1.0", "True", "true"])
def test_labels_are_read_as_tables_write_them(tmp_path: Path, right: object) -> None:
    rows = [{"query": 7, "candidate": "a", "score": "-1e3", "label": right}]
    assert read_labelled(write_scores(tmp_path / "scores.jsonl", rows), COLUMNS).label.tolist() == [1]


def test_columns_can_be_named(tmp_path: Path) -> None:
    names = {"query": "qid", "candidate": "doc", "score": "cosine", "label": "clicked"}
    rows = [{names.get(name, name): value for name, value in row.items()} for row in ROWS]
    path = write_scores(tmp_path / "scores.parquet", rows)
    assert read_labelled(path, Columns(**names)).num_pools == 40
    with pytest.raises(DataError, match=r"line 1: no column `query` among qid, .* Name the right one with --columns"):
        read_labelled(path, COLUMNS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"score": "high"}, 'line 3, field `score`: found "high". Expected: a valid number'),
        ({"score": float("nan")}, "field `score`: found NaN. Expected: a finite number"),
        ({"score": float("inf")}, "field `score`: found Infinity. Expected: a finite number"),
        ({"label": 2}, "field `label`: found 2. Expected: 0 or 1"),
        ({"label": None}, "field `label`: found null. Expected: 0 or 1"),
        ({"query": None}, "field `query`: found null"),
        ({"candidate": ""}, 'field `candidate`: found ""'),
        ({"candidate": "d0"}, "line 3: candidate 'd0' of query 'q00000' occurs twice"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    rows = [*ROWS[:2], {**ROWS[2], **change}, *ROWS[3:]]
    with pytest.raises(DataError) as error:
        read_labelled(write_scores(tmp_path / "scores.jsonl", rows), COLUMNS)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("scores.jsonl", None, "the file doesn't exist"),
        ("scores.jsonl", b"", "the file is empty"),
        ("scores.csv", b"query,candidate,score,label\n", "the file has no rows"),
        ("scores.jsonl", b'{"query": 1}\n', r"line 1: no column `candidate`"),
        ("scores.jsonl", b'{"query": \n', r"line 1: broken JSON.*Correct the row, or remove it"),
        ("scores.csv", b"query,candidate,score,label\nq,d\xff,1,1\n", "is not UTF-8"),
        ("scores.parquet", b"PAR1 and no more", "damaged"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, name: str, data: bytes | None, message: str) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=message):
        read_labelled(tmp_path / name, COLUMNS)
