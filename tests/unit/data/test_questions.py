from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icalib.core.errors import DataError
from icalib.data.questions import read_questions


def question(**changes: Any) -> dict[str, Any]:
    return {"context": [{"speaker": "user", "text": "It hums."}], "candidates": ["Restart it.", "Hello!"]} | changes


def write(path: Path, *lines: Any) -> Path:
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["questions.jsonl", "questions.jsonl.gz"])
def test_questions_come_in_order_and_take_their_line_number_as_id(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, question(), "", question(id="printer", extra=1), question())
    assert [one.id for one in read_questions(path)] == ["1", "printer", "4"]


def test_questions_may_be_an_array_or_parquet(tmp_path: Path) -> None:
    given = [question(), question(id="printer"), question()]
    array, table = tmp_path / "questions.json", tmp_path / "questions.parquet"
    array.write_text(json.dumps(given))
    pq.write_table(pa.Table.from_pylist(given, schema=pa.Table.from_pylist(given[1:]).schema), table)
    of_lines = read_questions(write(tmp_path / "questions.jsonl", *given))
    assert [one.id for one in of_lines] == ["1", "printer", "3"]
    assert read_questions(array) == read_questions(table) == of_lines


def test_an_id_may_be_an_integer(tmp_path: Path) -> None:
    path = write(tmp_path / "q.jsonl", question(id=17), question(id=0))
    assert [one.id for one in read_questions(path)] == ["17", "0"]
    with pytest.raises(DataError, match='id "17" was used before, on line 1'):
        read_questions(write(tmp_path / "twice.jsonl", question(id=17), question(id="17")))


def test_of_an_array_on_one_line_the_record_is_named(tmp_path: Path) -> None:
    path = tmp_path / "questions.json"
    path.write_text(json.dumps([question(), question(candidates="ab")]))
    with pytest.raises(DataError, match="line 1, record 2, field `candidates`"):
        read_questions(path)
    path.write_text(json.dumps([question(id="a"), question(id="b"), question(id="a")]))
    with pytest.raises(DataError, match='line 1, record 3, field `id`: id "a" was used before, on line 1, record 1'):
        read_questions(path)


def test_the_readmes_question_is_one(tmp_path: Path) -> None:
    """Its utterances are texts alone."""
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    line = readme.split("```json\n", 1)[1].split("```", 1)[0]
    (found,) = read_questions(write(tmp_path / "questions.jsonl", line.strip()))
    assert [turn.text for turn in found.context] == ["My printer hums."]
    assert found.id == "q1"


@pytest.mark.parametrize(
    ("bad", "field", "words"),
    [
        ('{"context": [', "", "broken JSON at character"),
        (question(candidates=["alone"]), "candidates", "at least 2 items"),
        (question(context=[{"speaker": "bot", "text": "x"}]), "context.0.speaker", "'user' or 'agent'"),
        ({"context": question()["context"]}, "candidates", "missing"),
        (question(id=True), "id", "found true"),
    ],
)
def test_a_bad_line_is_named_with_field_and_cure(tmp_path: Path, bad: Any, field: str, words: str) -> None:
    path = write(tmp_path / "q.jsonl", question(), bad)
    with pytest.raises(DataError) as caught:
        read_questions(path)
    assert (caught.value.path, caught.value.line, caught.value.field) == (str(path), 2, field)
    assert words in str(caught.value)
    assert "icalib predict --help" in str(caught.value)
    assert "--skip-bad" not in str(caught.value)


def test_a_missing_or_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        read_questions(tmp_path / "nowhere.jsonl")
    with pytest.raises(DataError, match="empty"):
        read_questions(write(tmp_path / "q.jsonl", "", " "))
