"""Readers of ready-made ranking data."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.pool_folders import read_pools

from icalib.core.errors import DataError, SettingError
from icalib.data.pools import read_pool_set
from icalib.data.prepare import PrepareSettings, prepare
from icalib.data.preview import preview
from icalib.data.schema import Pool
from icalib.data.sources.readers import open_source


def write_lines(path: Path, *records: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records))
    return path


def pools(path: Path, format: str | None = None, **options: Any) -> list[Pool]:
    return list(open_source(path, format, options).pools(None))


TEVATRON = {
    "query_id": "7",
    "query": "It hums.",
    "positive_passages": [{"docid": "1", "title": "Printers", "text": "Restart it."}],
    "negative_passages": [{"docid": "2", "title": "", "text": "Hello!"}],
}
TRIPLETS = [
    {"anchor": "It hums.", "positive": "Restart it.", "negative": "Hello!"},
    {"anchor": "It hums.", "positive": "Restart it.", "negative": "Plug it in."},
]
PAIRS = [
    {"query": "It hums.", "passage": "Hello!", "label": 0},
    {"query": "It hums.", "passage": "Restart it.", "label": 1},
    {"query": "It hums.", "passage": "Plug it in.", "label": 0},
]
CANDIDATES = {"context": ["It hums."], "candidates": ["Hello!", "Restart it.", "Plug it in."]}
NUMBERED = [{"question": "It hums.", "answer": "Restart it.", "negative_1": "Hello!", "negative_2": "Plug it in."}]
HARD = [
    {"anchor": "It hums.", "positive": "Restart it.", "hard_negative_1": "Hello!", "hard_negative_2": "Plug it in."}
]
CHOICES = {"question": "It hums.", "choices": CANDIDATES["candidates"], "answer": 1}
ANSWERS = [{"question": one["query"], "answer": one["passage"], "is_correct": bool(one["label"])} for one in PAIRS]
CONTENTS = {
    "query": "It hums.",
    "positives": [{"text": "Restart it.", "value": 3}],
    "negatives": [{"content": "Hello!"}, {"content": "Plug it in."}],
}
PREFERENCE = {
    "prompt": [{"role": "user", "content": "It hums."}],
    "chosen": [{"role": "user", "content": "It hums."}, {"role": "assistant", "content": "Restart it."}],
    "rejected": [{"role": "assistant", "content": "Hello!"}],
}


@pytest.mark.parametrize(
    ("records", "dialog_id", "candidates"),
    [
        ([TEVATRON], "7", ("Printers Restart it.", "Hello!")),
        (TRIPLETS, None, ("Restart it.", "Hello!", "Plug it in.")),
        (PAIRS, None, ("Restart it.", "Hello!", "Plug it in.")),
        ([CANDIDATES | {"label": 1}], None, ("Restart it.", "Hello!", "Plug it in.")),
        ([CHOICES], None, ("Restart it.", "Hello!", "Plug it in.")),
        (HARD, None, ("Restart it.", "Hello!", "Plug it in.")),
        ([CANDIDATES | {"labels": [0, 1, 0]}], None, ("Restart it.", "Hello!", "Plug it in.")),
        ([CANDIDATES | {"answer": "Restart it."}], None, ("Restart it.", "Hello!", "Plug it in.")),
        ([CANDIDATES | {"answers": ["Restart it."]}], None, ("Restart it.", "Hello!", "Plug it in.")),
        (NUMBERED, None, ("Restart it.", "Hello!", "Plug it in.")),
        ([CONTENTS], None, ("Restart it.", "Hello!", "Plug it in.")),
        (ANSWERS, None, ("Restart it.", "Hello!", "Plug it in.")),
        ([PREFERENCE], None, ("Restart it.", "Hello!")),
        ([PREFERENCE | {"messages": PREFERENCE["chosen"]}], None, ("Restart it.", "Hello!")),
    ],
)
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_training_data_of_other_rerankers(
    tmp_path: Path, records: list[Any], dialog_id: str | None, candidates: tuple[str, ...], suffix: str
) -> None:
    path = tmp_path / f"train.{suffix}"
    if suffix == "jsonl":
        write_lines(path, *records)
    else:
        pq.write_table(pa.Table.from_pylist(records), path)
    (pool,) = pools(path)
    assert pool.candidates == candidates
    assert (pool.split, pool.label) == ("train", 0)
    assert [(turn.speaker, turn.text) for turn in pool.context] == [("user", "It hums.")]
    assert pool.dialog_id == dialog_id or pool.dialog_id.startswith("query-")


def test_the_index_that_pandas_writes_keeps_no_rows_of_a_query_apart(tmp_path: Path) -> None:
    pd.DataFrame(PAIRS).to_csv(tmp_path / "train.csv")
    (pool,) = pools(tmp_path / "train.csv")
    assert (pool.candidates, pool.domain) == (("Restart it.", "Hello!", "Plug it in."), "")


def test_several_right_answers_are_in_one_pool_and_queries_without_one_are_counted(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "data.jsonl",
        {"query": "a", "pos": ["p1", "p2"], "neg": ["n1", "p1", "n1"]},
        {"query": "b", "pos": [], "neg": ["n1"]},
        {"query": "c", "pos": ["p1"], "neg": ["P1!"]},
    )
    listed = write_lines(
        tmp_path / "listed.jsonl", {"query": "a", "candidates": ["n1", "p1", "p2"], "label": [0, 1, 1]}
    )
    source = open_source(path)
    found = [*source.pools(None), *pools(listed)]
    assert [(pool.candidates, pool.right) for pool in found] == [(("p1", "p2", "n1"), (0, 1))] * 2
    assert dict(source.left_out) == {
        "queries without a right answer": 1,
        "queries without a wrong answer": 1,
        "wrong answers with the words of a right one": 2,
    }


def test_pairs_without_wrong_answers_get_them_mined(tmp_path: Path) -> None:
    path = tmp_path / "faq.csv"
    path.write_text('Question,Answer\n"It hums.",Restart it.\n"It hums.",Which model?\nNo sound.,Plug it in.\n')
    source = open_source(path)
    assert source.understood.endswith("wrong answers are mined, since the first rows have none")
    assert [(found.context[0].text, found.answers) for found in source.answers(None)] == [
        ("It hums.", ("Restart it.", "Which model?")),
        ("No sound.", ("Plug it in.",)),
    ]
    assert not list(source.pools(None))


def test_answers_as_squad_has_them_are_texts(tmp_path: Path) -> None:
    answers = {"text": ["Restart it.", "Restart it.", "Restart."], "answer_start": [1, 1, 1]}
    path = tmp_path / "validation.parquet"
    pq.write_table(pa.Table.from_pylist([{"context": "…", "question": "It hums.", "answers": answers}]), path)
    (found,) = open_source(path).answers(None)
    assert found.answers == ("Restart it.", "Restart.")


def test_wrong_answers_are_of_the_source_or_mined_and_those_left_out_are_counted(tmp_path: Path) -> None:
    rows = [{"query": f"q {number}", "pos": ["p"], "neg": []} for number in range(100)]
    late = {"query": "late", "pos": ["p"], "neg": ["n", "m"]}
    mined = open_source(write_lines(tmp_path / "mined.jsonl", *rows, late))
    assert (len(list(mined.answers(None))), len(list(mined.pools(None)))) == (101, 0)
    assert [(number, text[:45]) for text, number in mined.left_out.items()] == [
        (2, "wrong answers, since the first 100 rows have ")
    ]
    own = open_source(write_lines(tmp_path / "own.jsonl", late, *rows))
    assert (len(list(own.answers(None))), len(list(own.pools(None)))) == (0, 1)
    assert dict(own.left_out) == {"queries without a wrong answer": 100}


@pytest.mark.parametrize("field", ["question", "answer", "domain", "qid"])
@pytest.mark.parametrize("wrong", [{}, {"negative": "Hello!"}])
def test_half_of_a_surrogate_pair_is_refused_in_any_field(tmp_path: Path, field: str, wrong: dict[str, str]) -> None:
    row = {"qid": "7", "question": "It hums.", "answer": "Restart it.", "domain": "printers"} | wrong
    source = open_source(write_lines(tmp_path / "faq.jsonl", row, row | {"qid": "8", field: "\ud83d"}))
    rejected: list[int] = []
    found = [*source.answers(lambda error, raw: rejected.append(error.line))]
    found += source.pools(lambda error, raw: rejected.append(error.line))
    assert (len(found), rejected) == (1, [2])


@pytest.mark.parametrize("columns", [{"passage": "response", "label": "rating"}, {"label": "rating"}])
def test_labels_say_which_answers_are_right_unless_they_are_none(tmp_path: Path, columns: dict[str, str]) -> None:
    rows = [{"query": one["query"], "response": one["passage"], "rating": one["label"]} for one in PAIRS]
    path = write_lines(tmp_path / "train.jsonl", *rows)
    (pool,) = pools(path, columns=columns)
    assert pool.candidates == ("Restart it.", "Hello!", "Plug it in.")
    with pytest.raises(SettingError, match=r"0 and 1 as `rating`.*--columns label=rating"):
        open_source(path)
    for all_right in ({"label": ""}, {"positive": "response"}):
        understood = open_source(path, None, {"columns": all_right}).understood
        assert "not read: rating; wrong answers are mined" in understood
    words = [one | {"label": "good" if one.pop("rating") else "bad"} for one in rows]
    with pytest.raises(SettingError, match="bad and good as `label`"):
        open_source(write_lines(path, *words))
    for no_label in ({"label": "billing"}, {"score": 5.3}):
        made = [{"query": f"q{number}", "response": one["passage"], **no_label} for number, one in enumerate(PAIRS)]
        assert "positive=response" in open_source(write_lines(tmp_path / "topic.jsonl", *made)).understood


def test_wrong_answers_of_any_split_are_read(tmp_path: Path) -> None:
    write_lines(tmp_path / "dev.jsonl", {"query": "It beeps.", "pos": ["Charge it."]})
    write_lines(tmp_path / "train.jsonl", {"query": "It hums.", "pos": ["Restart it."], "neg": ["Hello!"]})
    source = open_source(tmp_path)
    assert [pool.candidates for pool in source.pools(None)] == [("Restart it.", "Hello!")]
    assert source.left_out == {"queries without a wrong answer": 1}


def test_a_preference_may_go_on_after_its_prompt(tmp_path: Path) -> None:
    said = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "It hums."},
    ]
    sides = {name: [*said, {"role": "assistant", "content": name}] for name in ("chosen", "rejected")}
    for prompt in ("Hi.", said[:2], said):
        (pool,) = pools(write_lines(tmp_path / "train.jsonl", {"prompt": prompt, **sides}))
        assert [turn.text for turn in pool.context] == ["Hi.", "Hello!", "It hums."]
        assert pool.candidates == ("chosen", "rejected")


def test_lists_of_a_csv_are_json(tmp_path: Path) -> None:
    """`to_csv` of pandas prints them as Python has them, and numpy's without commas."""
    lists = {"query": ["Hi.", "Hello!", "It hums."], "candidates": ["Hello!", "Restart it.", "Plug it in."]}
    for label in (1, [0, 1, 0], "Restart it."):
        rows = [{name: json.dumps(value) for name, value in lists.items()} | {"label": label}]
        pd.DataFrame(rows).to_csv(path := tmp_path / "train.csv", index=False)
        (pool,) = pools(path)
        assert [turn.text for turn in pool.context] == lists["query"]
        assert pool.candidates == ("Restart it.", "Hello!", "Plug it in.")
    for written in (str(lists["candidates"]), "['Hello!' 'Restart it.']"):
        pd.DataFrame([rows[0] | {"candidates": written}]).to_csv(path, index=False)
        with pytest.raises(DataError, match="a list as Python prints it") as caught:
            list(open_source(path).answers(None))
        assert caught.value.field == "candidates"
    text = '["Hello!"]'
    (found,) = open_source(write_lines(tmp_path / "texts.jsonl", {"query": "It hums.", "answer": text})).answers(None)
    assert found.answers == (text,)


def test_an_answer_without_a_text_is_an_error(tmp_path: Path) -> None:
    for bad in ({"body": "Restart it."}, {}, ["Restart it."]):
        sides = {"query": "It hums.", "pos": [bad], "neg": ["Hello!"]}
        candidates = {"query": "It hums.", "candidates": ["Hello!", bad], "label": 0}
        for number, record in enumerate((sides, candidates)):
            with pytest.raises(DataError, match="as answer, which has no text"):
                pools(write_lines(tmp_path / f"{number}" / "train.jsonl", record))


def test_a_right_answer_without_a_text_does_not_mean_that_none_is_right(tmp_path: Path) -> None:
    rows = [{"query": "It hums.", "passage": text, "label": text == ""} for text in ("", "Hello!", "Good bye.")]
    path = write_lines(tmp_path / "train.jsonl", *rows)
    with pytest.raises(DataError, match='found "" as right answer, which has no text'):
        pools(path)


def test_columns_of_ranking_data_can_be_named(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "train.jsonl", {"ask": "a", "good": "p", "poor": "n"})
    (pool,) = pools(path, columns={"query": "ask", "positive": "good", "negative": "poor"})
    assert (pool.context[0].text, pool.candidates) == ("a", ("p", "n"))
    with pytest.raises(SettingError, match="no column found for positive"):
        pools(path, columns={"query": "ask"})
    with pytest.raises(DataError, match="3 as label"):
        pools(write_lines(tmp_path / "list.jsonl", CANDIDATES | {"label": 3}))
    with pytest.raises(DataError, match='"often" as label'):
        pools(write_lines(tmp_path / "test.jsonl", PAIRS[0], {"query": "a", "passage": "p", "label": "often"}))


def test_right_answers_of_a_query_that_are_not_together_are_refused(tmp_path: Path) -> None:
    """As dialogues of their own they would mine each other as wrong answers."""
    rows = [{"query_id": name, "query": name, "positive": text} for name, text in ("1a", "2b", "1c")]
    source = open_source(write_lines(tmp_path / "apart.jsonl", *rows), None, {})
    with pytest.raises(DataError, match=r"used before, on line 1.*Sort the rows"):
        list(source.answers(None))


def test_labelled_rows_of_a_query_that_are_not_together_are_refused(tmp_path: Path) -> None:
    """Queries would lack the right answers that are elsewhere, and pools in which none is right come out."""
    other = {"query": "No sound.", "passage": "Plug it in.", "label": 1}
    for name, rows in (("pools", [*PAIRS[:2], other, PAIRS[2]]), ("mined", [PAIRS[1], other, PAIRS[1]])):
        source = open_source(write_lines(tmp_path / f"{name}.jsonl", *rows))
        with pytest.raises(DataError, match=r"a query that other rows have further up\. Sort the rows by query"):
            [*source.pools(lambda error, raw: None), *source.answers(lambda error, raw: None)]
    listed = CANDIDATES | {"label": 1}
    assert len(pools(write_lines(tmp_path / "test.jsonl", listed, listed | {"context": ["Hi."]}, listed))) == 3


def test_the_split_of_a_query_goes_before_that_of_the_file(tmp_path: Path) -> None:
    rows = [{"split": split, "query": f"q {split}", "pos": ["p"], "neg": ["n"]} for split in ("val", "test", "")]
    found = [pool.split for pool in pools(write_lines(tmp_path / "train.jsonl", *rows))]
    assert found == ["validation", "test", "train"]
    with pytest.raises(DataError, match='"extra" as split'):
        pools(write_lines(tmp_path / "train.jsonl", rows[0] | {"split": "extra"}))
    with pytest.raises(DataError, match="found test as split, but another row of the same conversation or query has "):
        pools(write_lines(tmp_path / "train.jsonl", rows[0], rows[0] | {"neg": ["m"], "split": "test"}))


@pytest.mark.parametrize("bad", [b"It hums.,Gr\xfc\xdfe,0", b"It hums.,Restart it, then wait,1"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_query_with_a_bad_row_is_left_out_whole(tmp_path: Path, bad: bytes, place: int) -> None:
    rows = [b"It hums.,Restart it.,1", b"It hums.,Hello!,0"]
    rows.insert(place, bad)
    path = tmp_path / "pairs.csv"
    path.write_bytes(b"\n".join([b"query,passage,label", b"Hi.,Hello!,1", b"Hi.,No.,0", *rows]))
    rejected: list[int] = []
    found = list(open_source(path).pools(lambda error, raw: rejected.append(error.line)))
    assert [pool.context[0].text for pool in found] == ["Hi."]
    assert rejected == [4 + place]


def test_bytes_of_a_row_of_json_lines_leave_its_query_out(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "pairs.jsonl", *PAIRS)
    path.write_bytes(path.read_bytes().replace(b"Plug it", b"Gr\xfc\xdfe"))
    rejected: list[int] = []
    assert not list(open_source(path).pools(lambda error, raw: rejected.append(error.line)))
    assert rejected == [3]


def test_ids_of_pools_differ_between_files(tmp_path: Path) -> None:
    for name in ("train.de.jsonl", "train.en.jsonl"):
        write_lines(tmp_path / name, {"query": name, "pos": ["p"], "neg": ["n"]})
    assert [pool.pool_id for pool in pools(tmp_path)] == ["train.de-1#0", "train.en-1#0"]
    write_lines(tmp_path / "Train.de.jsonl", {"query": "a", "pos": ["p"], "neg": ["n"]})
    with pytest.raises(
        DataError, match=r'pool_id "train\.de-1#0" was used before, .* of .*Train\.de\.jsonl\. Give one'
    ):
        pools(tmp_path)


@pytest.mark.parametrize("column", ["dialog_id", "Dialogue ID", "conversation_id"])
def test_pools_of_a_dialogue_are_in_one_split(tmp_path: Path, column: str) -> None:
    rows = [
        {"query": f"{number} {turn}", column: float(number), "pos": "p", "neg": "n"}
        for number in range(30)
        for turn in range(3)
    ]
    prepare(write_lines(tmp_path / "chats.jsonl", *rows), tmp_path / "pools")
    found = read_pools(tmp_path / "pools")
    assert len(found) == 90
    assert len({pool.dialog_id for pool in found}) == len({(pool.dialog_id, pool.split) for pool in found}) == 30
    assert {pool.split for pool in found} == {"train", "validation", "test"}


def test_answers_of_a_dialogue_are_not_mined_for_one_another(tmp_path: Path) -> None:
    rows = [  # of one dialogue are apart from each other
        {"dialog_id": f"d{number}", "query": f"question {turn}", "answer": f"answer {number} {turn}"}
        for turn in range(3)
        for number in range(12)
    ]
    source = write_lines(tmp_path / "train.jsonl", *rows)
    prepare(source, tmp_path / "pools", PrepareSettings(num_candidates=4, negative_sampler="bm25-response"))
    found = read_pools(tmp_path / "pools")
    assert len({pool.pool_id for pool in found}) == len(found) == 36
    for pool in found:
        numbers = [text.split()[1] for text in pool.candidates]
        assert numbers.count(pool.dialog_id[1:]) == 1
    with pytest.raises(DataError, match=r"used before, on line 1.*Sort the rows"):
        list(open_source(write_lines(source, *rows, rows[0])).answers(None))


def test_grades_that_are_no_labels_are_refused(tmp_path: Path) -> None:
    """Else one star and five would both be right answers."""
    rows = [{"query": f"q{number // 3}", "answer": f"a {number}", "label": 1 + number % 5} for number in range(30)]
    with pytest.raises(SettingError, match=r"labels in `label` are 1, 2, 3, 4, 5, all above 0.5"):
        open_source(write_lines(tmp_path / "stars.jsonl", *rows))
    ones = write_lines(tmp_path / "ones.jsonl", *({**row, "label": 1} for row in rows))
    assert len(list(open_source(ones).answers(None))) == 10


@pytest.mark.parametrize(
    ("labels", "said"),
    [((0.9, 0.3, 0.1), "from 0.1 to 0.9"), ((3, 0, 1), "from 0 to 3"), ((1, 0, 0), ""), ((True, False, False), "")],
)
def test_labels_that_are_cut_are_named(tmp_path: Path, labels: tuple[float, ...], said: str) -> None:
    rows = [one | {"label": label} for one, label in zip(PAIRS, labels, strict=True)]
    listed = CANDIDATES | {"label": list(labels)}
    for name, records in (("rows", rows), ("lists", [listed])):
        path = write_lines(tmp_path / f"{name}.jsonl", *records)
        assert f"{said}, and those above 0.5 count as right" * bool(said) in open_source(path).understood
        assert any("count as right" in line for line in preview(path, PrepareSettings())) == bool(said)
    assert "count as right" not in open_source(write_lines(path, CANDIDATES | {"label": 2})).understood


@pytest.mark.parametrize("scores", [(12.3, 8.1, 0), (0.9, 0.3, 0.1), (1, 0, 0.4)])
def test_scores_are_guessed_to_be_labels_only_if_all_are_0_or_1(tmp_path: Path, scores: tuple[float, ...]) -> None:
    rows = [{"query": "q", "passage": one["passage"], "score": score} for one, score in zip(PAIRS, scores, strict=True)]
    path = write_lines(tmp_path / "train.jsonl", *rows)
    with pytest.raises(SettingError, match=r"no column found for label.*passage, score.*--columns label=NAME"):
        open_source(path)
    (pool,) = pools(path, columns={"label": "score"})
    assert pool.right == tuple(range(sum(score > 0.5 for score in scores)))
    with pytest.raises(SettingError, match=r"as `score`.*--columns label=score"):
        open_source(
            write_lines(path, *({"query": "q", "answer": one["passage"], "score": one["score"]} for one in rows))
        )
    assert pools(write_lines(path, *({**row, "score": n % 2} for n, row in enumerate(rows))))[0].right == (0,)


def test_a_score_that_is_missing_leaves_the_others_labels(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("query,passage,score\na,x,0\na,y,1\nb,z,0\nb,w,\nb,v,1\n")
    rejected: list[str] = []
    found = list(open_source(path, None, {}).pools(lambda error, text: rejected.append(str(error))))
    assert len(rejected) == 1
    assert found[0].right == (0,)


def test_labels_that_are_texts_are_no_grades(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "texts.jsonl", {"query": "a", "candidates": ["1", "5"], "label": ["5"]})
    assert "count as right" not in open_source(path, None, {}).understood


@pytest.mark.parametrize("sampler", ["random", "neighbourhood", "bm25-response"])
def test_another_right_answer_of_a_query_is_never_mined_as_wrong(tmp_path: Path, sampler: str) -> None:
    """Canned answers are right for several queries."""
    rng = random.Random(3)
    right = {f"question {number}": rng.sample([f"canned answer {n}" for n in range(15)], 2) for number in range(200)}
    source = write_lines(tmp_path / "faq.jsonl", *({"query": name, "pos": answers} for name, answers in right.items()))
    prepare(source, tmp_path / "pools", PrepareSettings(num_candidates=4, negative_sampler=sampler))
    found = read_pools(tmp_path / "pools")
    assert len(found) == 400
    for pool in found:
        assert [text for text in pool.candidates if text in right[pool.context[0].text]] == [
            pool.candidates[pool.label]
        ]


def test_splits_of_ready_pools_are_drawn_with_the_seed_where_the_source_has_none(tmp_path: Path) -> None:
    rows = [{"query": f"question {number}", "pos": ["yes"], "neg": ["no"]} for number in range(300)]
    drawn: list[set[str]] = []
    for seed, name in enumerate(("ready.jsonl", "again.jsonl", "train.jsonl")):
        out = tmp_path / name.removesuffix(".jsonl")
        prepare(write_lines(tmp_path / name, *rows), out, PrepareSettings(seed=min(seed, 1)))
        assert read_pool_set(out).split_origin == ("drawn" if seed < 2 else "mixed")
        drawn.append({pool.dialog_id for pool in read_pools(out, "test")})
    assert 10 < len(drawn[0]) < 60
    assert len(drawn[0] & drawn[1]) < 0.5 * len(drawn[0])


def test_splits_are_drawn_with_the_seed_where_some_queries_have_none(tmp_path: Path) -> None:
    rows = [
        {"query": f"question {number}", "pos": ["yes"], "neg": ["no"], **({"split": "test"} if number < 30 else {})}
        for number in range(300)
    ]
    drawn: list[set[str]] = []
    for seed in range(2):
        out = tmp_path / str(seed)
        prepare(write_lines(tmp_path / "some.jsonl", *rows), out, PrepareSettings(seed=seed))
        assert read_pool_set(out).split_origin == "mixed"
        drawn.append({pool.context[0].text for pool in read_pools(out, "test")})
    own = {f"question {number}" for number in range(30)}
    assert drawn[0] & drawn[1] >= own
    assert drawn[0] - own != drawn[1] - own


def test_an_empty_list_in_a_cell_is_no_answer(tmp_path: Path) -> None:
    """As in JSON Lines."""
    rows = [{"query": f"question {number}", "pos": '["yes"]', "neg": "[]"} for number in range(3)]
    pd.DataFrame(rows).to_csv(path := tmp_path / "faq.csv", index=False)
    assert [found.answers for found in open_source(path).answers(None)] == [("yes",)] * 3
    pd.DataFrame([{"query": "q", "candidates": '["no", "yes"]', "label": "[false, true]"}]).to_csv(path, index=False)
    (pool,) = pools(path)
    assert pool.candidates[pool.label] == "yes"


def test_the_index_of_the_right_candidate_may_be_a_float_but_not_true(tmp_path: Path) -> None:
    """pandas makes floats of a column of indices with gaps."""
    record = {"query": "It hums.", "candidates": ["Hello!", "Restart it."]}
    (pool,) = pools(write_lines(tmp_path / "train.jsonl", {**record, "label": 1.0}))
    assert pool.candidates[pool.label] == "Restart it."
    with pytest.raises(DataError, match="found true as label"):
        pools(write_lines(tmp_path / "train.jsonl", {**record, "label": True}))
