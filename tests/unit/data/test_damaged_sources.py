"""Sources that are damaged or hostile: errors with file and line, records that --skip-bad leaves out."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from icalib.core.errors import DataError
from icalib.data.prepare import PrepareSettings, prepare
from icalib.data.questions import read_questions
from icalib.data.sources.files import LINE_LIMIT
from icalib.data.sources.readers import open_source


def dialogue(dialog_id: str, /, **changes: Any) -> dict[str, Any]:
    texts = ["it hums", "which one?", "the printer", f"restart {dialog_id}"]
    turns = [{"speaker": ("user", "agent")[index % 2], "text": text} for index, text in enumerate(texts)]
    return {"dialog_id": dialog_id, "utterances": turns} | changes


def icast_folder(path: Path, num_pools: int = 3) -> Path:
    for split in ("train", "valid", "test"):
        (path / split).mkdir(parents=True)
        for name, line in (
            ("context.tsv", "it hums\tOQ\n"),
            ("answer.tsv", "restart it\n"),
            ("negative_sampling.tsv", "hello\tbye\n"),
        ):
            (path / split / name).write_text(line * num_pools)
    return path


@pytest.mark.parametrize("field", ["domain", "source", "dialog_id"])
def test_lone_surrogates_are_refused_and_skipped(tmp_path: Path, field: str) -> None:
    records = [dialogue(f"d{n}", split="train") for n in range(6)]
    records.insert(1, dialogue("bad", split="train", **{field: "x \ud800"}))
    source = tmp_path / "d.jsonl"
    source.write_text("\n".join(map(json.dumps, records)))
    with pytest.raises(DataError) as caught:
        prepare(source, tmp_path / "pools", PrepareSettings(num_candidates=2))
    assert (caught.value.line, caught.value.field) == (2, field)
    pools = prepare(source, tmp_path / "pools", PrepareSettings(num_candidates=2, skip_bad=True))
    assert (sum(pools.num_pools.values()), pools.num_rejected) == (6, 1)


def test_a_key_that_is_repeated_on_one_line_gives_no_doubled_pool_id(tmp_path: Path) -> None:
    turns = [{"actor_type": ("User", "Agent")[n % 2], "utterance": f"turn {n}", "tags": "OQ"} for n in range(4)]
    member = json.dumps({"title": "t", "category": "c", "utterances": turns})
    source = tmp_path / "forum.json"
    source.write_text(f'{{"7": {member}, "7": {member}, "8": {member}}}')
    with pytest.raises(DataError, match='dialog_id "msdialog-7" was used before, on line 1'):
        list(open_source(source).dialogues(None))
    rejected: list[DataError] = []
    kept = list(open_source(source).dialogues(lambda error, raw: rejected.append(error)))
    assert [one.dialog_id for one in kept] == ["msdialog-7", "msdialog-8"]
    assert len(rejected) == 1


def test_an_id_of_another_file_with_the_same_line_is_found(tmp_path: Path) -> None:
    rows = "Context,Ground Truth Utterance,Distractor_0\nit hums __eou__ __eot__,restart it,hello\n"
    (tmp_path / "test.csv").write_text(rows)
    (tmp_path / "test_small.csv").write_text(rows)
    with pytest.raises(DataError, match=r'pool_id "udc-test-2" was used before, on line 2 of .*test.csv'):
        list(open_source(tmp_path).pools(None))


@pytest.mark.parametrize("where", ["first", "second"])
def test_an_endless_line_is_refused_without_being_held(tmp_path: Path, where: str) -> None:
    lines = [json.dumps(dialogue("a")).encode(), b'{"dialog_id": "' + b"x" * (4 * LINE_LIMIT) + b'"}']
    lines = lines if where == "second" else lines[::-1]
    path = tmp_path / "d.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n".join([*lines, json.dumps(dialogue("b")).encode()]), compresslevel=1))
    del lines
    rejected: list[tuple[DataError, str]] = []
    tracemalloc.start()
    kept = list(open_source(path, "jsonl").dialogues(lambda error, raw: rejected.append((error, raw))))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [one.dialog_id for one in kept] == ["a", "b"]
    ((error, raw),) = rejected
    assert (error.path, error.line) == (str(path), 1 if where == "first" else 2)
    assert "a line of more than 16 MiB" in str(error)
    assert len(raw) < 10_000
    assert peak < 4 * LINE_LIMIT


def test_an_endless_member_of_a_json_object_is_refused_without_being_held(tmp_path: Path) -> None:
    path = tmp_path / "forum.json.gz"
    path.write_bytes(gzip.compress(b'{"7": "' + b"x" * (8 * LINE_LIMIT) + b'"}', compresslevel=1))
    tracemalloc.start()
    with pytest.raises(DataError, match="in a member of more than 16 MiB"):
        list(open_source(path, "msdialog").dialogues(None))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 7 * LINE_LIMIT


@pytest.mark.parametrize("column", ["context.tsv", "answer.tsv", "negative_sampling.tsv"])
def test_an_endless_line_in_an_icast_folder_can_be_skipped(tmp_path: Path, column: str) -> None:
    folder = icast_folder(tmp_path / "icast")
    lines = (folder / "train" / column).read_text().splitlines()
    lines[1] = "x" * (LINE_LIMIT + 1)
    (folder / "train" / column).write_text("\n".join(lines) + "\n")
    rejected: list[DataError] = []
    pools = list(open_source(folder).pools(lambda error, raw: rejected.append(error)))
    assert len(pools) == 8
    assert f"more than 16 MiB in {column}" in str(rejected[0])


def test_questions_have_ids_of_their_own(tmp_path: Path) -> None:
    question = {"context": [{"speaker": "user", "text": "it hums"}], "candidates": ["a", "b"], "id": "q"}
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join([json.dumps(question), json.dumps({**question, "id": "r"}), json.dumps(question)]))
    with pytest.raises(DataError, match='id "q" was used before, on line 1') as caught:
        read_questions(path)
    assert caught.value.line == 3
