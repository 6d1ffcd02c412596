from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from icalib.core.errors import DataError, SettingError
from icalib.data.sources.readers import open_source


def turn(speaker: str, text: str, *intents: str) -> dict[str, Any]:
    return {"speaker": speaker, "text": text, "intents": list(intents)}


def record(dialog_id: str = "d1", **changes: Any) -> dict[str, Any]:
    return {"dialog_id": dialog_id, "split": "train", "utterances": [turn("user", "hi", "GG")]} | changes


@pytest.mark.parametrize(
    ("bad", "field", "words"),
    [
        ('{"dialog_id": "x"', "", "broken JSON at character"),
        ("[1, 2]", "", "JSON object was expected"),
        (record(utterances=[turn("robot", "hi")]), "utterances.0.speaker", "'user' or 'agent'"),
        (record(utterances=[turn("user", "hi"), turn("agent", "  ")]), "utterances.1.text", "at least 1 character"),
        (record("good"), "dialog_id", 'dialog_id "good" was used before, on line 1'),
        (record(utterances=[turn("user", "\ud800")]), "utterances.0.text", "valid unicode"),
    ],
)
def test_a_bad_record_is_named_by_line_and_field(tmp_path: Path, bad: Any, field: str, words: str) -> None:
    path = tmp_path / "d.jsonl"
    lines = [json.dumps(record("good")), bad if isinstance(bad, str) else json.dumps(bad), json.dumps(record("after"))]
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError) as caught:
        list(open_source(path).dialogues(None))
    assert (caught.value.path, caught.value.line, caught.value.field) == (str(path), 2, field)
    assert words in str(caught.value)
    assert "--skip-bad" in str(caught.value)


def test_a_missing_field_may_be_null(tmp_path: Path) -> None:
    """As pandas and Arrow write it."""
    said = turn("user", "hi") | {"intents": None, "is_answer": None}
    path = tmp_path / "d.jsonl"
    path.write_text(json.dumps(record(utterances=[said], source=None, domain=None, split=None)))
    (found,) = open_source(path).dialogues(None)
    assert (found.source, found.domain, found.split, found.utterances[0].intents) == ("", "", None, ())


def test_no_more_than_its_beginning_says_that_json_lines_are_no_forum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading all of them as one JSON object would hold them in memory."""
    monkeypatch.delattr("icalib.data.sources.papers.json_members")
    path = tmp_path / "chats.json"
    path.write_text((json.dumps({"messages": [{"role": "user", "content": "Hi."}]}) + "\n") * 2)
    assert open_source(path).reader == "messages"


def test_wrong_path_empty_file_and_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        open_source(tmp_path / "nowhere.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(DataError, match="empty"):
        open_source(tmp_path / "empty.jsonl")
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(SettingError, match="--format"):
        open_source(tmp_path / "notes.txt")
    with pytest.raises(SettingError, match="mantis-tsv"):
        open_source(tmp_path / "notes.txt", format="xml")


def forum(path: Path, intent_field: str, intents: Any, **members: Any) -> Path:
    utterances = [
        {"actor_type": "User", "utterance": "my  screen\nis black", intent_field: intents, "vote": 0},
        {"actor_type": "Agent", "utterance": "plug it in", intent_field: "PA" if intents == "OQ GG" else ["PA"]},
    ]
    path.write_text(json.dumps({"7": {"title": "t", "category": "Word", "utterances": utterances}, **members}))
    return path


def test_msdialog_tags_and_roles(tmp_path: Path) -> None:
    bad = {"utterances": [{"actor_type": "Robot", "utterance": "x"}]}
    source = open_source(forum(tmp_path / "MSDialog-Intent.json", "tags", "OQ GG", bad=bad))
    found = source.dialogues(None)
    dialogue = next(found)
    assert source.reader == "msdialog"
    assert (dialogue.dialog_id, dialogue.domain, dialogue.split) == ("msdialog-7", "Word", None)
    assert [(u.speaker, u.text, u.intents) for u in dialogue.utterances] == [
        ("user", "my screen is black", ("OQ", "GG")),
        ("agent", "plug it in", ("PA",)),
    ]
    with pytest.raises(DataError, match="robot") as caught:
        next(found)
    assert caught.value.field == "utterances.0.actor_type"


def test_mantis_folder_takes_splits_from_names_and_prefers_intents(tmp_path: Path) -> None:
    for name in ("merged_train", "merged_dev", "merged_train_intents", "merged_dev_intents"):
        forum(tmp_path / f"{name}.json", "intent", ["OQ", "FD"])
    source = open_source(tmp_path)
    dialogues = list(source.dialogues(None))
    assert source.reader == "mantis"
    assert [(d.dialog_id, d.split) for d in dialogues] == [
        ("mantis-validation-7", "validation"),
        ("mantis-train-7", "train"),
    ]
    assert dialogues[0].utterances[0].intents == ("OQ", "FD")
    assert open_source(tmp_path / "merged_train_intents.json").reader == "mantis"


def test_mantis_tsv_groups_lines_of_a_context(tmp_path: Path) -> None:
    path = tmp_path / "data_dev_easy.tsv"
    path.write_text(
        "1\tu1\ta1\tu2\tright\n0\tu1\ta1\tu2\twrong\n1\tv1\tyes\n0\tv1\tno\n0\tv1\tmaybe\n1\tv1\ttoo\n0\tv1\tnever\n"
    )
    source = open_source(path)
    pools = list(source.pools(None))
    assert source.reader == "mantis-tsv"
    assert [p.candidates for p in pools] == [("right", "wrong"), ("yes", "too", "no", "maybe", "never")]
    assert [p.right for p in pools] == [(0,), (0, 1)]
    assert [u.speaker for u in pools[0].context] == ["user", "agent", "user"]
    assert {p.split for p in pools} == {"validation"}


def write_csv(path: Path, *rows: list[str]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def test_udc_folder_gives_dialogues_and_pools(tmp_path: Path) -> None:
    context = (
        "hi all __eou__ my disk is full __eou__ __eot__ which one __eou__ __eot__ sda,\nof course __eou__ __eot__ "
    )
    rows = [[context, "empty it __eou__", "1"], [context, "no", "0"], ["a", "b"], ["a", "b", "maybe"], ["", "", "1"]]
    write_csv(tmp_path / "train.csv", ["Context", "Utterance", "Label"], *rows)
    header = ["Context", "Ground Truth Utterance", *(f"Distractor_{n}" for n in range(9))]
    write_csv(tmp_path / "test.csv", header, [context, "good __eou__ luck", *(f"w{n}" for n in range(9))])
    source = open_source(tmp_path)
    rejected: list[tuple[int, str]] = []
    (dialogue,) = source.dialogues(lambda error, raw: rejected.append((error.line, error.field)))
    (pool,) = source.pools(None)
    assert rejected == [(6, ""), (7, "Label"), (8, "Context.0.Utterance")]  # the lines where the rows begin
    assert source.last_turn_only
    assert [(u.speaker, u.text) for u in dialogue.utterances] == [
        ("user", "hi all"),
        ("user", "my disk is full"),
        ("agent", "which one"),
        ("user", "sda, of course"),
        ("agent", "empty it"),
    ]
    assert pool.candidates == ("good luck", *(f"w{n}" for n in range(9)))
    assert (pool.split, len(pool.context)) == ("test", 4)


def icast_folder(root: Path) -> Path:
    rows = {
        "train": ("u1\tOQ\ta1\tPA_GG\tu2\tFD", "right", "w1\tw2\t"),
        "unlabeled": ("u1\ta1", "right", "w1\tw2"),
        "valid": ("u1\t", "right", "w1\tw2"),
        "test": ("u1\tOQ", "right", "w1\tw2"),
    }
    for folder, texts in rows.items():
        (root / folder).mkdir(parents=True)
        for name, text in zip(("context", "answer", "negative_sampling"), texts, strict=True):
            (root / folder / f"{name}.tsv").write_text(text + "\n")
    return root


def test_icast_folders(tmp_path: Path) -> None:
    source = open_source(icast_folder(tmp_path))
    train, unlabelled, validation, test = source.pools(None)
    assert source.reader == "icast"
    assert [(u.speaker, u.text, u.intents) for u in train.context] == [
        ("user", "u1", ("OQ",)),
        ("agent", "a1", ("PA", "GG")),
        ("user", "u2", ("FD",)),
    ]
    assert train.candidates == ("right", "w1", "w2")
    assert (unlabelled.split, [u.text for u in unlabelled.context]) == ("train", ["u1", "a1"])
    assert validation.context[0].intents == ()
    assert test.split == "test"


def test_icast_errors(tmp_path: Path) -> None:
    root = icast_folder(tmp_path / "odd")
    (root / "train" / "context.tsv").write_text("u1\tOQ\ta1\n")
    with pytest.raises(DataError, match="even number"):
        list(open_source(root).pools(None))
    root = icast_folder(tmp_path / "short")
    (root / "test" / "answer.tsv").write_text("right\nright\n")
    with pytest.raises(DataError, match="ends before line 2"):
        list(open_source(root).pools(None))
    (root / "valid" / "answer.tsv").unlink()
    with pytest.raises(DataError, match=r"no answer\.tsv"):
        open_source(root)


def test_ids_are_unique_on_one_line_and_across_files(tmp_path: Path) -> None:
    member = json.dumps({"category": "c", "utterances": [{"actor_type": "User", "utterance": "hi", "tags": "OQ"}]})
    forum = tmp_path / "forum.json"
    forum.write_text(f'{{"7": {member}, "7": {member}, "8": {member}}}')
    with pytest.raises(DataError, match='dialog_id "msdialog-7" was used before, on line 1'):
        list(open_source(forum).dialogues(None))
    kept = list(open_source(forum).dialogues(lambda error, raw: None))
    assert [one.dialog_id for one in kept] == ["msdialog-7", "msdialog-8"]
    for name in ("test.csv", "test_small.csv"):
        write_csv(tmp_path / name, ["Context", "Ground Truth Utterance", "Distractor_0"], ["hum", "restart", "hello"])
    with pytest.raises(DataError, match=r'pool_id "udc-test-2" was used before, on line 2 of .*test.csv'):
        list(open_source(tmp_path, "udc").pools(None))


@pytest.mark.parametrize("text", ['"Restart" it, then wait', '"it hums', '"a "quote" inside"'])
@pytest.mark.parametrize("after", [0, 3])
def test_quotes_that_are_not_balanced_swallow_no_rows(tmp_path: Path, text: str, after: int) -> None:
    rows = ["chat\tsender\ttext", "1\tuser\t'tis 5\" wide", '1\tagent\t"Two\nlines"', f"1\tuser\t{text}"]
    path = tmp_path / "chats.tsv"
    path.write_text("\n".join([*rows, *["1\tagent\tHello!"] * after]))
    with pytest.raises(DataError, match=r"broken CSV.*Write a quote inside a quoted field twice") as caught:
        list(open_source(path, "table").dialogues(lambda error, raw: None))
    assert caught.value.line == 5


def test_rows_without_a_value_are_none(tmp_path: Path) -> None:
    """As spreadsheets leave them behind."""
    (tmp_path / "chats.csv").write_text("chat;sender;text\n1;user;It hums.\n;;\n1;agent;Restart it.\n;; \n")
    (dialogue,) = open_source(tmp_path / "chats.csv").dialogues(None)
    assert [one.text for one in dialogue.utterances] == ["It hums.", "Restart it."]


def test_a_pasted_log_is_a_text_and_files_that_macos_hides_are_not_read(tmp_path: Path) -> None:
    log = "GET / HTTP/1.1 " * 10_000
    (tmp_path / "chats.csv").write_text(f"chat,sender,text\n1,user,It hums.\n1,agent,{log}\n")
    (tmp_path / "._chats.csv").write_bytes(b"\x00\x05\x16\x07")
    (dialogue,) = open_source(tmp_path, "table").dialogues(None)
    assert [len(one.text) for one in dialogue.utterances] == [8, len(log.strip())]


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        (
            "ansi.csv",
            "id;sender;text\n1;user;Grüße\n".encode("cp1252"),
            r"line 2: byte 0xfc at .* Save the file as UTF-8",
        ),
        ("head.csv", b"id,sender,text\n", "a header of 3 columns and no rows. Expected a row for each message"),
        ("mac.csv", b"id,sender,text\r1,user,hi\r", "end lines with a line feed"),
        ("comma.csv", b"id,sender,text\n1,user,hi, there\n", "line 2: found 4 columns, but the header has 3"),
    ],
)
def test_a_first_record_that_cannot_be_read_is_said_where_the_format_is_unknown(
    tmp_path: Path, name: str, data: bytes, words: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=words):
        open_source(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{\n "chats": []\n}', "The first record has the fields chats"),
        ("hello\n", 'The first record has the text "hello"'),
    ],
)
def test_an_unknown_format_is_said_with_the_first_record(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "data.json").write_text(text)
    with pytest.raises(SettingError, match=f"the format is unknown.*{words}.*jq -c"):
        open_source(tmp_path / "data.json")


def test_nothing_follows_a_json_array(tmp_path: Path) -> None:
    """As two files that were joined have it; the second one would be lost."""
    chat = json.dumps([{"messages": [{"role": "user", "content": "It hums."}]}])
    (tmp_path / "chats.json").write_text(f"{chat}\n{chat}\n")
    with pytest.raises(DataError, match=r"line 2: broken JSON: expected nothing after \]"):
        list(open_source(tmp_path / "chats.json").dialogues(None))
