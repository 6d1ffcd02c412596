"""Readers of ready-made ranking data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import pytrec_eval

from icalib.core.errors import DataError, SettingError
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
NUMBERED = [{"question": "It hums.", "answer": "Restart it.", "negative_1": "Hello!", "negative_2": "Plug it in."}]


@pytest.mark.parametrize(
    ("records", "dialog_id", "candidates"),
    [
        ([TEVATRON], "7", ("Printers Restart it.", "Hello!")),
        (TRIPLETS, None, ("Restart it.", "Hello!", "Plug it in.")),
        (PAIRS, None, ("Restart it.", "Hello!", "Plug it in.")),
        (NUMBERED, None, ("Restart it.", "Hello!", "Plug it in.")),
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


def test_several_right_answers_are_in_one_pool_and_queries_without_one_are_counted(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "data.jsonl",
        {"query": "a", "pos": ["p1", "p2"], "neg": ["n1", "p1", "n1"]},
        {"query": "b", "pos": [], "neg": ["n1"]},
        {"query": "c", "pos": ["p1"], "neg": ["p1"]},
    )
    source = open_source(path)
    found = list(source.pools(None))
    assert [(pool.candidates, pool.right) for pool in found] == [(("p1", "p2", "n1"), (0, 1))]
    assert dict(source.left_out) == {"queries without a right answer": 1, "queries without a wrong answer": 1}


def test_pairs_without_wrong_answers_get_them_mined(tmp_path: Path) -> None:
    path = tmp_path / "faq.csv"
    path.write_text('Question,Answer\n"It hums.",Restart it.\n"It hums.",Which model?\nNo sound.,Plug it in.\n')
    source = open_source(path)
    assert source.understood.endswith("wrong answers are mined, since there are none")
    assert [(found.context[0].text, found.answers) for found in source.answers(None)] == [
        ("It hums.", ("Restart it.", "Which model?")),
        ("No sound.", ("Plug it in.",)),
    ]
    assert not list(source.pools(None))


def test_columns_of_ranking_data_can_be_named(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "train.jsonl", {"prompt": "a", "chosen": "p", "rejected": "n"})
    (pool,) = pools(path, columns={"query": "prompt", "positive": "chosen", "negative": "rejected"})
    assert (pool.context[0].text, pool.candidates) == ("a", ("p", "n"))
    with pytest.raises(SettingError, match="no column found for positive"):
        pools(path, columns={"query": "prompt"})
    with pytest.raises(DataError, match='"often" as label'):
        pools(write_lines(tmp_path / "test.jsonl", PAIRS[0], {"query": "a", "passage": "p", "label": "often"}))


QRELS = "q1 0 d1 1\nq1 0 d4 2\nq1 0 d2 0\nq2 0 d3 1\nq4 0 d1 1\n"
RUN = (
    "q1 Q0 d2 1 9.5 r\nq1 Q0 d3 4 6.5 r\nq1 Q0 d1 2 8.5 r\nq1 Q0 d4 3 7.5 r\n"
    "q2 Q0 d3 1 3.5 r\nq2 Q0 d2 2 2.5 r\nq3 Q0 d3 1 1.5 r\nq4 Q0 d2 1 1.5 r\n"
)


def test_a_trec_folder_agrees_with_pytrec_eval(tmp_path: Path) -> None:
    (tmp_path / "qrels.test.txt").write_text(QRELS)
    (tmp_path / "run.bm25.txt").write_text(RUN)
    write_lines(
        tmp_path / "corpus.jsonl", *({"id": f"d{n}", "title": "", "contents": f"text {n}"} for n in range(1, 5))
    )
    (tmp_path / "topics.tsv").write_text("".join(f"q{n}\tquery {n}\n" for n in range(1, 5)))
    source = open_source(tmp_path)
    found = list(source.pools(None))
    qrels, run = pytrec_eval.parse_qrel(QRELS.splitlines()), pytrec_eval.parse_run(RUN.splitlines())
    expected: list[tuple[str, int, list[str]]] = []
    for query, scores in run.items():
        ranked = sorted(scores, key=lambda text: -scores[text])
        right = [text for text in ranked if qrels.get(query, {}).get(text, 0) > 0]
        wrong = [text for text in ranked if text not in right]
        expected += [(query, len(right), [*right, *wrong])] if right else []
    texts = {f"d{n}": f"text {n}" for n in range(1, 5)}
    assert [(pool.dialog_id, pool.right, pool.candidates) for pool in found] == [
        (query, tuple(range(num_right)), tuple(texts[text] for text in ranked)) for query, num_right, ranked in expected
    ]
    assert {pool.split for pool in found} == {"test"}
    assert source.left_out["queries without a right answer"] == 2  # q3 is not judged, q4's right answer is not ranked


def beir(folder: Path, *, lists: bool, wrong: bool) -> Path:
    write_lines(folder / "corpus.jsonl", *({"_id": f"d{n}", "title": "T", "text": f"text {n}"} for n in range(1, 5)))
    write_lines(
        folder / "queries.jsonl",
        {"_id": "q1", "text": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}]},
        {"_id": "q2", "text": "query 2"},
    )
    rows = ["query-id\tcorpus-id\tscore", "q1\td1\t1", "q2\td2\t1", *(["q1\td3\t0", "q2\td3\t0"] if wrong else [])]
    for split in ("train", "test"):
        write_lines(folder / "qrels" / f"{split}.tsv", rows[0], *rows[{"train": 1, "test": 2}[split] :: 2])
    if lists:
        ranked = [{"query-id": f"q{n}", "corpus-ids": ["d4", "d1", "d2"]} for n in (1, 2)]
        (folder / "top_ranked").mkdir()
        pq.write_table(pa.Table.from_pylist(ranked), folder / "top_ranked" / "test-00000-of-00001.parquet")
    return folder


def test_beir_folders(tmp_path: Path) -> None:
    ranked = pools(beir(tmp_path / "ranked", lists=True, wrong=True))
    assert [(pool.dialog_id, pool.split, pool.candidates) for pool in ranked] == [
        ("q2", "test", ("T text 2", "T text 4", "T text 1")),
        ("q1", "train", ("T text 1", "T text 4", "T text 2")),
    ]
    assert [(turn.speaker, turn.text) for turn in ranked[1].context] == [("user", "Hi"), ("agent", "Yes?")]
    judged = pools(beir(tmp_path / "judged", lists=False, wrong=True))
    assert [pool.candidates for pool in judged] == [("T text 2", "T text 3"), ("T text 1", "T text 3")]
    source = open_source(beir(tmp_path / "mined", lists=False, wrong=False))
    assert [(found.dialog_id, found.split, found.answers) for found in source.answers(None)] == [
        ("q2", "test", ("T text 2",)),
        ("q1", "train", ("T text 1",)),
    ]


def test_a_folder_without_a_part_says_which(tmp_path: Path) -> None:
    (tmp_path / "qrels.txt").write_text(QRELS)
    (tmp_path / "run.txt").write_text(RUN)
    with pytest.raises(DataError, match="no file with queries or topics in its name"):
        open_source(tmp_path)
    with pytest.raises(DataError, match="needs corpus, queries and qrels"):
        open_source(tmp_path, "beir")


def test_labelled_rows_that_are_all_right_get_wrong_answers_mined(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "faq.jsonl", *({"query": f"q{n}", "passage": f"p{n}", "label": 1} for n in range(3)))
    assert [found.answers for found in open_source(path).answers(None)] == [("p0",), ("p1",), ("p2",)]


def test_two_readings_of_a_collection_do_not_disturb_each_other(tmp_path: Path) -> None:
    source = open_source(beir(tmp_path / "ranked", lists=True, wrong=True))
    assert [
        (one, other) for one, other in zip(source.pools(None), source.pools(None), strict=True) if one != other
    ] == []
