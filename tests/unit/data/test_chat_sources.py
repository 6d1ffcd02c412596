"""Readers of chat logs and of tables of messages."""

from __future__ import annotations

import json
import re
import shlex
import tracemalloc
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icalib.cli.options import parsed_pairs
from icalib.core.errors import DataError, SettingError
from icalib.data.preview import preview
from icalib.data.schema import Dialogue
from icalib.data.settings import PrepareSettings
from icalib.data.sources.messages import USELESS_TIMES
from icalib.data.sources.readers import open_source

OPENAI = {"messages": [{"role": "user", "content": "It hums."}, {"role": "assistant", "content": "Restart it."}]}
SHAREGPT = {"conversations": [{"from": "human", "value": "It hums."}, {"from": "gpt", "value": "Restart it."}]}
TURNS = [("user", "It hums."), ("agent", "Restart it.")]


def dialogues(path: Path, format: str | None = None, **options: Any) -> list[Dialogue]:
    return list(open_source(path, format, options).dialogues(None))


def turns(dialogue: Dialogue) -> list[tuple[str, str]]:
    return [(utterance.speaker, utterance.text) for utterance in dialogue.utterances]


def write_json(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path


@pytest.mark.parametrize("record", [OPENAI, SHAREGPT])
@pytest.mark.parametrize("layout", ["lines", "array", "indented", "one"])
def test_chats_in_any_layout_of_json(tmp_path: Path, record: Any, layout: str) -> None:
    path = tmp_path / "chats.json"
    values = {
        "lines": "\n".join([json.dumps(record)] * 2),
        "array": json.dumps([record, record]),
        "indented": json.dumps([record, record], indent=2),
        "one": json.dumps(record),
    }
    path.write_text(values[layout])
    found = dialogues(path)
    assert open_source(path).reader == "messages"
    assert [turns(dialogue) for dialogue in found] == [TURNS] * len(found)
    assert [dialogue.dialog_id for dialogue in found] == ["chats-1", "chats-2"][: 1 if layout == "one" else 2]


@pytest.mark.parametrize(
    "export",
    [
        {  # a chat of Telegram's
            "type": "personal_chat",
            "messages": [
                {"id": 1, "type": "service", "action": "phone_call", "actor": "Ann"},
                {"id": 2, "type": "message", "from": "Ann", "text": ["It ", {"type": "bold", "text": "hums."}]},
                {"id": 3, "type": "message", "from": "Help desk", "text": "Restart it."},
            ],
        },
        {  # DiscordChatExporter's
            "guild": {"id": "1", "name": "desk"},
            "messages": [
                {"id": "1", "content": "It hums.", "author": {"id": "1", "name": "Ann"}},
                {"id": "2", "content": "Restart it.", "author": {"id": "2", "name": "Help desk"}},
            ],
        },
        [
            {
                "chat_messages": [
                    {"sender": "human", "text": "It hums.", "content": []},
                    {"sender": "bot", "text": "", "content": [{"text": "Restart it."}]},
                ]
            }
        ],
    ],
)
def test_exports_of_chat_programs(tmp_path: Path, export: Any) -> None:
    speakers = {"Help desk": "agent", "*": "user"}
    (found,) = dialogues(write_json(tmp_path / "export.json", export), speakers=speakers)
    assert turns(found) == TURNS
    (tmp_path / "export.json").write_text(json.dumps(export, indent=1))
    assert dialogues(tmp_path / "export.json", speakers=speakers) == [found]


def test_speakers_are_mapped_in_every_dialogue_format(tmp_path: Path) -> None:
    ours = tmp_path / "ours.jsonl"
    utterances = [
        {"speaker": "Customer", "text": "It hums."},
        {"speaker": "moderator", "text": "Welcome!"},
        {"speaker": "Bob", "text": "Restart it."},
    ]
    ours.write_text(json.dumps({"utterances": utterances}) + "\n")
    with pytest.raises(DataError, match=r"\"moderator\".*--speakers moderator=user ") as caught:
        dialogues(ours)
    assert caught.value.field == "utterances.1.speaker"
    (found,) = dialogues(ours, speakers={"moderator": "skip", "bob": "agent"})
    assert (found.dialog_id, turns(found)) == ("ours-1", TURNS)


def csv_rows(num_conversations: int) -> pd.DataFrame:
    rows = [
        {"Conversation ID": number, "Created At": f"2026-01-{day:02d}T09:05:00Z", "Sender Type": sender, "Body": text}
        for day, sender, text in [
            (3, "bot", "Which, model?"),
            (1, "client", "It\n\nhums."),
            (4, "operator", '"Restart" it.'),
        ]
        for number in range(num_conversations)
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize("name", ["export.csv", "semicolons.csv", "export.parquet", "export.jsonl"])
def test_a_table_of_messages_is_grouped_and_sorted_by_time(tmp_path: Path, name: str) -> None:
    frame, path = csv_rows(3), tmp_path / name
    if path.suffix == ".parquet":
        frame.assign(**{"Created At": pd.to_datetime(frame["Created At"])}).to_parquet(path)
    elif path.suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_csv(path, index=False, sep=";" if name == "semicolons.csv" else ",")
        path.write_text("\n" + path.read_text().replace("\n2;", "\n \n\n2;") + "\n")  # blank lines are no rows
    source = open_source(path)
    roles = {"client": "user", "bot": "agent", "operator": "agent"}
    expected = {
        str(number): [(roles[row["Sender Type"]], row["Body"]) for _, row in group.sort_values("Created At").iterrows()]
        for number, group in frame.groupby("Conversation ID")
    }
    assert {found.dialog_id: turns(found) for found in source.dialogues(None)} == expected
    assert source.reader == "table"
    assert "id=Conversation ID, time=Created At, sender=Sender Type, text=Body" in source.understood


def test_ids_of_conversations_repeat_and_those_of_messages_do_not(tmp_path: Path) -> None:
    """The README's columns: `id, time, sender, text`."""
    rows = ["1,09:00,agent,Hello!", "1,09:01,user,My printer hums.", "1,09:02,agent,Restart it.", "2,09:00,user,Hi."]
    (tmp_path / "chats.csv").write_text("\n".join(["id,time,sender,text", *rows]))
    found = dialogues(tmp_path / "chats.csv")
    assert [(dialogue.dialog_id, len(dialogue.utterances)) for dialogue in found] == [("1", 3), ("2", 1)]
    (tmp_path / "messages.csv").write_text("\n".join(["id,sender,text", *(f"{n},user,text {n}" for n in range(5))]))
    with pytest.raises(SettingError, match=r"rows has another `id`.*--columns id=NAME"):
        open_source(tmp_path / "messages.csv")
    (tmp_path / "both.csv").write_text("id,thread,sender,text\n1,7,user,Hi.\n2,7,agent,Hello!")
    (dialogue,) = dialogues(tmp_path / "both.csv")
    assert dialogue.dialog_id == "7"


def test_a_conversation_is_one_whether_a_file_has_its_number_as_integer_or_float(tmp_path: Path) -> None:
    """A column of integers with gaps, such as of messages without a ticket that were dropped, is of floats."""
    rows = [{"ticket": 17, "sent": n, "sender": role, "body": text} for n, (role, text) in enumerate(TURNS)]
    pd.DataFrame(rows[:1]).to_parquet(tmp_path / "january.parquet")
    pd.DataFrame(rows[1:]).astype({"ticket": float}).to_parquet(tmp_path / "february.parquet")
    (found,) = dialogues(tmp_path)
    assert (found.dialog_id, turns(found)) == ("17", TURNS)


def test_columns_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "export.csv"
    path.write_text("nr,who,what,when\n1,bot,second,2\n1,client,first,1\n")
    with pytest.raises(SettingError, match=r"has the fields nr, who, what, when\..*--columns id=NAME,sender=NAME"):
        open_source(path)
    columns = {"id": "nr", "sender": "who", "text": "what"}
    assert turns(*dialogues(path, columns=columns)) == [("agent", "second"), ("user", "first")]
    assert turns(*dialogues(path, columns=columns | {"time": "when"})) == [("user", "first"), ("agent", "second")]
    for wrong, words in (
        ({"sender": "who"}, "no column found for id, text. The columns are nr, who, what, when"),
        (columns | {"text": "which"}, "no column named which"),
        (columns | {"body": "what"}, "--columns body=what: expected one of"),
    ):
        with pytest.raises(SettingError, match=re.escape(words)):
            dialogues(path, "table", columns=wrong)
    source = open_source(path, options={"columns": columns | {"time": "what"}})
    assert "keep their order" in source.understood
    assert turns(next(source.dialogues(None))) == [("agent", "second"), ("user", "first")]


def test_rows_of_equal_times_are_turned_round_where_the_newest_come_first(tmp_path: Path) -> None:
    times = ["2026-01-31 09:07", "2026-01-31 09:06", "2026-01-31 09:06", "2026-01-31 09:05", "2026-01-31 09:05"]
    falling = [
        {"ticket": 1, "ts": time, "role": role, "text": f"m{4 - number}"}
        for number, (time, role) in enumerate(zip(times, ["user", "agent"] * 3, strict=False))
    ]
    for name, rows in (("falling", falling), ("rising", falling[::-1])):
        pd.DataFrame(rows).to_csv(tmp_path / f"{name}.csv", index=False)
        source = open_source(tmp_path / f"{name}.csv")
        assert [text for _, text in turns(next(source.dialogues(None)))] == ["m0", "m1", "m2", "m3", "m4"]
        assert ("the newest rows come first" in source.understood) == (name == "falling")
    pd.DataFrame(falling).drop(columns="ts").to_csv(tmp_path / "timeless.csv", index=False)
    assert "there is no column of times" in open_source(tmp_path / "timeless.csv").understood


@pytest.mark.parametrize("times", [["09:05", "09:06", "09:07"], ["09:05", "09:05", "09:07"]])
@pytest.mark.parametrize("newest_first", [False, True])
def test_messages_are_sorted_by_their_times(tmp_path: Path, times: list[str], newest_first: bool) -> None:
    chat = [
        {"role": role, "text": role, "id": "m", "createdAt": f"2026-01-31T{time}Z"}
        for role, time in zip(["user", "bot", "customer"], times, strict=True)
    ]
    path = write_json(tmp_path / "chats.json", {"messages": chat[::-1] if newest_first else chat})
    (found,) = dialogues(path)
    assert [text for _, text in turns(found)] == ["user", "bot", "customer"]


@pytest.mark.parametrize("useless", ["31.01.2026", "2026-01-31T09:07", None])
def test_times_by_which_messages_cannot_be_sorted_are_counted(tmp_path: Path, useless: str | None) -> None:
    """Else nobody would notice that the newest messages come first."""
    chat = [
        {"role": role, "text": role, "createdAt": time}
        for role, time in zip(
            ["user", "bot", "customer"], ["2026-01-31T09:05Z", "2026-01-31T09:06Z", useless], strict=True
        )
    ]
    timeless = [{**message, "createdAt": None} for message in chat]
    path = tmp_path / "chats.jsonl"
    path.write_text("".join(json.dumps({"messages": one}) + "\n" for one in (chat[::-1], timeless, chat[:2])))
    source = open_source(path)
    found, *_ = source.dialogues(None)
    assert [text for _, text in turns(found)] == ["customer", "bot", "user"]
    assert dict(source.left_out) == {USELESS_TIMES: 1}


@pytest.mark.parametrize("telling", ["sent_at", "turn"])
def test_rows_are_sorted_by_the_times_that_tell_them_apart(tmp_path: Path, telling: str) -> None:
    """The first ones by name may be of the conversation, or a day; the first cell may be empty."""
    rows = [
        {"ticket": 1, "created_at": "2026-01-31", "sender": role, "body": role, telling: number}
        for number, role in [(3, "visitor"), (1, "user"), (2, "bot")]
    ]
    path = tmp_path / "export.csv"
    pd.DataFrame([{**rows[0], "ticket": 2, "created_at": ""}, *rows]).to_csv(path, index=False)
    source = open_source(path)
    assert f"time={telling}" in source.understood
    assert [text for _, text in turns(list(source.dialogues(None))[1])] == ["user", "bot", "visitor"]
    pd.DataFrame(rows).drop(columns=telling).to_csv(path, index=False)
    assert "those of a conversation have one `created_at`" in open_source(path).understood


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_day_and_a_time_of_day_are_one_time(tmp_path: Path, suffix: str) -> None:
    said = [("02-01", "00:01", "bot"), ("01-31", "23:58", "user"), ("01-31", "23:59", "visitor")]
    rows = pd.DataFrame(
        {"ticket": 1, "date": f"2026-{day}", "time": f"{time}:00", "sender": role, "body": role}
        for day, time, role in said
    )
    path = tmp_path / f"export.{suffix}"
    if suffix == "csv":
        rows.to_csv(path, index=False)
    else:
        days, times = pd.to_datetime(rows["date"]), pd.to_datetime(rows["time"], format="%H:%M:%S")
        rows.assign(date=days.dt.date, time=times.dt.time).to_parquet(path)
    for options in ({}, {"columns": {"time": "date", "clock": "time"}}):
        source = open_source(path, options=options)
        assert all(column in source.understood for column in ("time=date", "clock=time"))
        assert [text for _, text in turns(next(iter(source.dialogues(None))))] == ["user", "visitor", "bot"]


def test_rows_that_are_written_twice_are_read_once(tmp_path: Path) -> None:
    rows = [{"ticket": 1, "sent": n, "sender": role, "body": text} for n, (role, text) in enumerate(TURNS)]
    path = tmp_path / "export.csv"
    pd.DataFrame([*rows, *rows]).to_csv(path, index=False)
    for columns, number in (({}, 2), ({"time": ""}, 4)):
        source = open_source(path, options={"columns": columns})
        assert [turns(found) for found in source.dialogues(None)] == [TURNS * (number // 2)]
        assert sum(source.left_out.values()) == 4 - number


@pytest.mark.parametrize("text", [{"content": "It hums."}, [{"type": "text", "text": {"value": "It hums."}}]])
def test_a_text_may_be_in_an_object(tmp_path: Path, text: Any) -> None:
    """As Teams and OpenAI's assistants have it."""
    chat = {"messages": [{"role": "user", "body": text}, {"role": "bot", "body": "Restart it."}]}
    assert [turns(found) for found in dialogues(write_json(tmp_path / "chats.json", chat))] == [TURNS]


@pytest.mark.parametrize("name", ["utterance", "text"])
def test_messages_may_be_json_in_a_cell(tmp_path: Path, name: str) -> None:
    chat = json.dumps([{"speaker": role, name: text} for role, text in TURNS])
    path = tmp_path / "chats.csv"
    pd.DataFrame([{"ticket_id": 7, "conversation": chat}]).to_csv(path, index=False)
    assert [(found.dialog_id, turns(found)) for found in dialogues(path)] == [("7", TURNS)]


def test_intents_that_are_no_list_are_refused(tmp_path: Path) -> None:
    chat = {"messages": [{"role": "user", "content": "It hums.", "intents": "PF"}]}
    with pytest.raises(DataError, match="Expected: a list") as caught:
        dialogues(write_json(tmp_path / "chats.json", chat))
    assert caught.value.field == "messages.0.intents"


def test_a_folder_of_parquet_takes_splits_from_names(tmp_path: Path) -> None:
    for split in ("train", "validation"):
        path = tmp_path / f"{split}-00000-of-00001.parquet"
        pq.write_table(pa.Table.from_pylist([{"id": f"{split} 1", **OPENAI}]), path)
    assert [(d.dialog_id, d.split) for d in dialogues(tmp_path)] == [
        ("train 1", "train"),
        ("validation 1", "validation"),
    ]
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="damaged"):
        dialogues(tmp_path)


def test_records_are_streamed_and_a_table_is_grouped_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "chats.json"
    path.write_text(json.dumps([OPENAI] * 3000)[:-1] + ", broken")
    assert turns(next(open_source(path, "messages").dialogues(None))) == TURNS  # before the end is read
    table = tmp_path / "table.csv"
    with table.open("w") as file:
        file.write("chat,sender,text\n")
        for number in range(6000):
            file.write(f"{number % 200},{('client', 'bot')[number % 2]},{'word ' * 200}\n")
    source = open_source(table)
    tracemalloc.start()
    assert sum(1 for _ in source.dialogues(None)) == 200
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert table.stat().st_size > 6e6
    assert peak < 4e6


def test_conversations_without_text_are_counted_and_left_out(tmp_path: Path) -> None:
    silent = {"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": None}]}
    path = write_json(tmp_path / "chats.json", [OPENAI, silent, {"messages": []}])
    table = tmp_path / "export.csv"
    table.write_text("chat,sender,text\n1,client,It hums.\n2,system,Closed.\n1,bot,Restart it.\n3,client,\n")
    for file in (path, table):
        source = open_source(file)
        assert [turns(dialogue) for dialogue in source.dialogues(None)] == [TURNS]
        assert dict(source.left_out) == {
            "conversations without a text of user or agent": 2,
            "messages without text": 1,
            "messages of speakers that are skipped, such as system and tool (--speakers)": 1,
        }


@pytest.mark.parametrize("name", ["chats.json", "export.jsonl", "export.csv", "export.parquet"])
def test_a_number_is_a_text(tmp_path: Path, name: str) -> None:
    """JSON made of a CSV often has numbers where the CSV has digits."""
    path, texts = tmp_path / name, [5, 7]
    rows = pd.DataFrame([{"chat": 1, "sender": "client", "text": text} for text in texts])
    if name == "chats.json":
        write_json(path, {"messages": [{"role": "user", "content": text} for text in [*texts, None, float("nan")]]})
    elif name == "export.jsonl":
        rows.to_json(path, orient="records", lines=True)
    elif name == "export.csv":
        rows.to_csv(path, index=False)
    else:
        rows.to_parquet(path)
    assert [turns(found) for found in dialogues(path)] == [[("user", "5"), ("user", "7")]]


def write_rows(path: Path, *rows: str) -> Path:
    path.write_text("".join(f"{row}\n" for row in rows))
    return path


@pytest.mark.parametrize("word", ["validation", "valid", "Val", "dev", "development", "eval "])
def test_a_record_has_its_split_in_any_usual_word_before_that_of_the_file(tmp_path: Path, word: str) -> None:
    path = write_json(tmp_path / "training-chats.json", [OPENAI | {"split": word}, OPENAI | {"split": None}])
    assert [found.split for found in dialogues(path)] == ["validation", "train"]
    table = write_rows(tmp_path / "test.csv", "chat,split,sender,text", f"1,{word},user,Hi.", "2,,user,Hi.")
    assert [found.split for found in dialogues(table)] == ["validation", "test"]
    assert [found.split for found in dialogues(table, columns={"split": ""})] == ["test", "test"]
    assert [found.split for found in dialogues(write_json(tmp_path / f"{word}.json", OPENAI))] == ["validation"]
    own = {"utterances": [{"speaker": "user", "text": "It hums."}]}
    path = write_rows(tmp_path / f"{word}.jsonl", json.dumps(own), json.dumps(own | {"split": "test"}))
    assert open_source(path).reader == "jsonl"
    assert [found.split for found in dialogues(path)] == ["validation", "test"]


def test_an_unknown_split_is_refused(tmp_path: Path) -> None:
    path = write_json(tmp_path / "chats.json", [OPENAI | {"split": "hold-out"}])
    rows = "chat,split,sender,text", "1,train,user,Hi.", "1,hold-out,agent,Hello!"
    for file in (path, write_rows(tmp_path / "chats.csv", *rows)):
        with pytest.raises(DataError, match=r'"hold-out" as split\. Expected one of train, .*val, .*--skip') as caught:
            dialogues(file)
        assert caught.value.field == "split"


def test_rows_of_a_conversation_have_one_split(tmp_path: Path) -> None:
    rows = ["chat,split,sender,text", "1,,user,Hi.", "1,test,agent,Hello!", "1,,user,It hums.", "2,val,user,Hi."]
    path = write_rows(tmp_path / "chats.csv", *rows)
    assert [found.split for found in dialogues(path)] == ["test", "validation"]
    write_rows(path, *rows, "1,train,agent,Restart it.")
    with pytest.raises(
        DataError, match=r"found train as split, but another row .* has test\. .*--columns split="
    ) as caught:
        dialogues(path)
    assert (caught.value.line, caught.value.field) == (6, "split")
    assert [found.split for found in dialogues(path, columns={"split": ""})] == [None, None]


@pytest.mark.parametrize(
    ("names", "left_out"),
    [
        ("chats-2023 chats-2024 printer-test-team", ""),
        ("train val test", ""),
        ("train labels", "labels"),
        ("dev test notes", "notes"),
    ],
)
def test_files_without_a_split_are_left_out_where_the_names_are_of_splits(
    tmp_path: Path, names: str, left_out: str
) -> None:
    for name in names.split():
        write_rows(tmp_path / f"{name}.csv", "chat,sender,text", f"{name},user,Hi.", f"{name},agent,Hello!")
    assert {found.dialog_id for found in dialogues(tmp_path)} == {*names.split()} - {left_out}


@pytest.mark.parametrize("bad", [b"1,agent,Restart it, then wait", b"1,agent,Gr\xfc\xdfe"])
def test_a_conversation_with_a_bad_row_is_left_out_whole(tmp_path: Path, bad: bytes) -> None:
    path = tmp_path / "chats.csv"
    path.write_bytes(b"chat,sender,text\n1,user,It hums.\n2,user,Hi.\n" + bad + b"\n1,agent,Restart it.\n")
    rejected: list[tuple[int, str]] = []
    source = open_source(path)
    found = list(source.dialogues(lambda error, raw: rejected.append((error.line, raw.splitlines()[0]))))
    assert [dialogue.dialog_id for dialogue in found] == ["2"]
    assert rejected == [(4, "1,user,It hums.")]


@pytest.mark.parametrize(
    "name", ["Ann", "Doe, John", "O'Brien", 'Jürgen "JG" Groß', "a\\b $HOME `ls`", "x=y", "Support team " * 20, 7, 1.0]
)
def test_the_option_that_an_error_suggests_for_a_speaker_works(tmp_path: Path, name: Any) -> None:
    unknown = {"role": name, "content": "It hums."}
    path = write_json(tmp_path / "chats.json", {"messages": [unknown, OPENAI["messages"][1]]})
    with pytest.raises(DataError) as caught:
        dialogues(path)
    option, pair, *_ = shlex.split(str(caught.value)[str(caught.value).index("--speakers ") :].partition(" (or")[0])
    assert option == "--speakers"
    assert [turns(found) for found in dialogues(path, speakers=parsed_pairs(option, [pair]))] == [TURNS]
    several = parsed_pairs(option, [f"{pair},*=agent"])
    assert several == {str(name).strip(): "user", "*": "agent"}


@pytest.mark.parametrize("name", [None, "", {"id": 7}, float("nan")])
def test_speakers_without_a_name_are_among_all_others(tmp_path: Path, name: Any) -> None:
    """As Telegram has deleted accounts."""
    path = write_json(
        tmp_path / "chat.json", {"messages": [{"from": name, "text": "It hums."}, {"from": "bot", "text": "?"}]}
    )
    with pytest.raises(DataError, match=r"as speaker.*\*=user is for all others"):
        dialogues(path)
    assert [turns(found) for found in dialogues(path, speakers={"*": "user"})] == [
        [("user", "It hums."), ("agent", "?")]
    ]


def test_marks_of_accepted_answers_may_be_numbers(tmp_path: Path) -> None:
    marks = [1, 0, True, False, None, "", 1.0]
    messages = [{"role": "assistant", "content": "Restart it.", "is_answer": mark} for mark in marks]
    path = write_json(tmp_path / "chats.json", {"messages": messages})
    (found,) = dialogues(path)
    assert [turn.is_answer for turn in found.utterances] == [True, False, True, False, None, None, True]
    with pytest.raises(DataError, match='found "perhaps"'):
        dialogues(write_json(path, {"messages": [messages[0] | {"is_answer": "perhaps"}]}))


def test_files_of_a_folder_that_are_not_read_are_named(tmp_path: Path) -> None:
    messages = "conversation,sender,text\na,user,My printer hums.\na,agent,Restart it.\n"
    for name in ("train-tickets.csv", "bus-tickets.csv", "more.txt", ".hidden.csv"):
        (tmp_path / name).write_text(messages)
    (tmp_path / "2025").mkdir()
    source = open_source(tmp_path)
    assert [file.name for file in source.files] == ["train-tickets.csv"]
    assert source.not_read.startswith("not read: 2025, bus-tickets.csv, more.txt (files of one kind")
    assert any(line == source.not_read for line in preview(tmp_path, PrepareSettings()))
    assert not open_source(tmp_path / "bus-tickets.csv").unread


@pytest.mark.parametrize("other", ["2026-01-31T09:06:00", "1769850360"])
def test_times_of_two_forms_are_not_compared(tmp_path: Path, other: str) -> None:
    times = ["2026-01-31T09:05:00+02:00", other]
    table = [
        {"ticket": 1, "ts": time, "role": role, "text": text} for time, (role, text) in zip(times, TURNS, strict=True)
    ]
    pd.DataFrame(table).to_csv(tmp_path / "chats.csv", index=False)
    with pytest.raises(DataError, match=f'line 3, field `ts`: found "{other}" as time.*form of the first row'):
        dialogues(tmp_path / "chats.csv")
    path = write_json(tmp_path / "chats.json", {"messages": table[::-1]})
    assert turns(*dialogues(path)) == TURNS[::-1]  # in the order of the file


def test_texts_of_parquet_may_be_called_bytes(tmp_path: Path) -> None:
    """As Hive and Impala write them; bytes that are no text, such as pictures, don't matter."""
    table = [{"ticket": b"7", "sender": role.encode(), "body": text.encode(), "icon": b"\xff"} for role, text in TURNS]
    for name, rows in (("table", table), ("chats", [{"id": b"7", "icon": b"\xff", "messages": table}])):
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"{name}.parquet")
        (found,) = dialogues(tmp_path / f"{name}.parquet")
        assert (found.dialog_id, turns(found)) == ("7", TURNS)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_all_tables_of_a_folder_have_the_columns_and_some_of_them_rows(tmp_path: Path, suffix: str) -> None:
    """Spark leaves files without rows behind."""
    frame = pd.DataFrame([{"ticket": 1, "sender": role, "body": text} for role, text in TURNS])
    for name, rows in (("a", frame[:0]), ("b", frame), ("c", frame.rename(columns={"body": "comment"}))):
        path = tmp_path / f"{name}.{suffix}"
        rows.to_csv(path, index=False) if suffix == "csv" else rows.to_parquet(path)
        if name == "b":
            (found,) = dialogues(tmp_path)
            assert turns(found) == TURNS
    with pytest.raises(SettingError, match=rf"c\.{suffix}: no column named body, which other files have as text"):
        dialogues(tmp_path)
    with pytest.raises(DataError, match="no rows"):
        dialogues(tmp_path / f"a.{suffix}")


def test_a_broken_first_line_does_not_hide_the_format(tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    path.write_text('{"messages": [\n' + json.dumps({"messages": [{"role": "user", "content": "Hi."}]}) + "\n")
    assert open_source(path).reader == "messages"


def test_marks_of_accepted_answers_in_a_table_may_be_as_pandas_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "chats.csv"
    path.write_text("id,sender,text,is_answer\n1,customer,It hums.,\n1,agent,Restart it.,1.0\n1,agent,Hm.,0.0\n")
    (found,) = dialogues(path)
    assert [turn.is_answer for turn in found.utterances] == [None, True, False]
