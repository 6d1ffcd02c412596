from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.scored_pools import list_rows, pair_table, scored_pools, write_jsonl, write_pairs, write_run

from icalib.core.errors import DataError, SettingError
from icalib.external.labelled import read_labelled
from icalib.external.score_file import ScoreFile, read_qrels
from icalib.metrics.pairs import PoolScores

POOLS = scored_pools(40)


def same(found: PoolScores, expected: PoolScores = POOLS) -> None:
    assert found.pool_ids == expected.pool_ids
    assert np.array_equal(found.offsets, expected.offsets)
    assert found.logit == pytest.approx(expected.logit)
    assert np.array_equal(found.label, expected.label)


def test_every_form_gives_the_same_pools(tmp_path: Path) -> None:
    parquet = ScoreFile.open(write_pairs(tmp_path / "pairs.parquet", POOLS))
    assert parquet.columns == {"pool": "query_id", "candidate": "doc_id", "score": "rerank_score", "label": "relevant"}
    assert parquet.understood.startswith("columns: pool=query_id, candidate=doc_id, score=rerank_score, label=relevant")
    same(read_labelled(parquet).pools)
    lines = ScoreFile.open(write_jsonl(tmp_path / "pairs.jsonl", pair_table(POOLS).to_pylist()))
    same(read_labelled(lines).pools)
    rows = list_rows(POOLS)
    lists = ScoreFile.open(write_jsonl(tmp_path / "lists.jsonl", rows))
    assert lists.lists
    same(read_labelled(lists).pools)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "lists.parquet")
    same(read_labelled(ScoreFile.open(tmp_path / "lists.parquet")).pools)
    answerable = [row for row in rows if 1 in row["labels"]]  # type: ignore[operator]
    by_index = [{**row, "labels": row["labels"].index(1)} for row in answerable]  # type: ignore[attr-defined]
    pq.write_table(pa.Table.from_pylist(by_index), tmp_path / "index.parquet")
    write_jsonl(tmp_path / "index.jsonl", by_index)
    for name in ("index.parquet", "index.jsonl"):
        found = read_labelled(ScoreFile.open(tmp_path / name)).pools
        assert found.num_pools == len(answerable)
        assert found.label.tolist() == [one for row in answerable for one in row["labels"]]  # type: ignore[attr-defined]


def test_pairs_of_a_pool_need_not_be_together(tmp_path: Path) -> None:
    def shuffled(table: pa.Table) -> pa.Table:
        return table.take(np.random.default_rng(0).permutation(table.num_rows))

    found = read_labelled(ScoreFile.open(write_pairs(tmp_path / "pairs.parquet", POOLS, shuffled))).pools
    assert found.pool_ids == POOLS.pool_ids
    assert np.array_equal(found.pool_sum(found.logit).round(9), POOLS.pool_sum(POOLS.logit).round(9))


def test_a_run_takes_its_labels_from_judgements(tmp_path: Path) -> None:
    run, qrels = write_run(tmp_path, POOLS)
    file = ScoreFile.open(run)
    assert file.kind == "trec"
    found = read_labelled(file, qrels).pools
    assert np.array_equal(found.pool_sum(found.label), POOLS.pool_sum(POOLS.label))
    hits = [
        label[score.argmax()] for label, score in zip(found.split(found.label), found.split(found.logit), strict=True)
    ]
    expected = zip(POOLS.split(POOLS.label), POOLS.split(POOLS.logit), strict=True)
    assert hits == [label[score.argmax()] for label, score in expected]
    lines = qrels.read_text().splitlines()
    qrels.write_text("\n".join(line for line in lines if not line.startswith("q00003 ")))
    assert read_labelled(file, qrels).num_unlabelled == 1
    with pytest.raises(SettingError, match=r"has no labels.*--qrels"):
        read_labelled(file)


def test_judgements_of_beir_have_a_header(tmp_path: Path) -> None:
    (tmp_path / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\n")
    assert read_qrels(tmp_path / "test.tsv") == {"q1": {"d1": 1, "d2": 0}}
    (tmp_path / "broken.txt").write_text("q1 0 d1 1\nq1 0 d2 0\n\nq1 d2 0 x 1\n")
    with pytest.raises(DataError, match=r"broken.txt, line 4: found 5 fields"):
        read_qrels(tmp_path / "broken.txt")


def test_labels_may_be_words_as_pandas_writes_them(tmp_path: Path) -> None:
    rows = pair_table(POOLS).to_pylist()
    expected = read_labelled(ScoreFile.open(write_jsonl(tmp_path / "scores.jsonl", rows))).pools
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    (tmp_path / "scores.csv").write_text("\n".join(lines) + "\n")
    assert "True" in lines[1] + lines[2] + lines[3] + lines[4] + lines[5] + lines[6]
    found = read_labelled(ScoreFile.open(tmp_path / "scores.csv")).pools
    assert found.label.tolist() == expected.label.tolist()
    assert found.logit.tolist() == expected.logit.tolist()


def test_pools_with_an_unknown_label_are_left_out(tmp_path: Path) -> None:
    rows = list_rows(POOLS)
    rows[5]["labels"] = [-1] * 6
    rows[6]["labels"] = None
    found = read_labelled(ScoreFile.open(write_jsonl(tmp_path / "scores.jsonl", rows)))
    assert (found.pools.num_pools, found.num_unlabelled) == (38, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rerank_score": "high"}, r"line 2, field `rerank_score`: found \"high\", expected a finite number"),
        ({"rerank_score": float("nan")}, r"expected a finite number"),
        ({"rerank_score": None}, r"found null"),
        ({"query_id": None}, r"found no pool"),
        ({"rerank_score": [1.0]}, r"found \[1.0\], expected a number"),
        ({"doc_id": "d0"}, r"candidate 'd0' of pool 'q00000' occurs twice"),
        ({"note": "\ud800"}, r"line 2: found half of a surrogate pair"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, change: dict[str, object], message: str) -> None:
    rows = pair_table(POOLS).to_pylist()
    rows[1] = {**rows[1], **change}
    file = ScoreFile.open(write_jsonl(tmp_path / "scores.jsonl", rows))
    with pytest.raises(DataError, match=message):
        read_labelled(file)


def test_bad_columns_of_parquet_are_named(tmp_path: Path) -> None:
    table = pair_table(POOLS)
    texts = table.set_column(2, "rerank_score", table["rerank_score"].cast(pa.string()))
    pq.write_table(texts, tmp_path / "text.parquet")
    with pytest.raises(DataError, match=r"found values of type string, expected numbers"):
        read_labelled(ScoreFile.open(tmp_path / "text.parquet"))
    score = table["rerank_score"].to_pylist()
    score[203] = None
    pq.write_table(table.set_column(2, "rerank_score", pa.array(score)), tmp_path / "null.parquet")
    with pytest.raises(DataError, match=r"line 204, field `rerank_score`: found nan"):
        read_labelled(ScoreFile.open(tmp_path / "null.parquet"))
    rows = list_rows(POOLS)
    rows[3]["labels"] = [0, 1]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "lists.parquet")
    with pytest.raises(DataError, match=r"line 4, field `labels`: found 2 labels and 6 scores"):
        read_labelled(ScoreFile.open(tmp_path / "lists.parquet"))


def test_columns_can_be_named(tmp_path: Path) -> None:
    table = pair_table(POOLS).rename_columns(["a", "b", "c", "d", "e"])
    pq.write_table(table, tmp_path / "odd.parquet")
    with pytest.raises(SettingError, match=r"no column found for score. The columns are a, b, c, d, e"):
        ScoreFile.open(tmp_path / "odd.parquet")
    with pytest.raises(SettingError, match=r"no column found for pool"):
        ScoreFile.open(tmp_path / "odd.parquet", {"score": "c"})
    file = ScoreFile.open(tmp_path / "odd.parquet", {"pool": "a", "score": "c", "label": "d"})
    same(read_labelled(file).pools)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the file doesn't exist"):
        ScoreFile.open(tmp_path / "nothing.parquet")
    (tmp_path / "cut.parquet").write_bytes(write_pairs(tmp_path / "whole.parquet", POOLS).read_bytes()[:200])
    with pytest.raises(DataError, match="damaged"):
        ScoreFile.open(tmp_path / "cut.parquet")
    (tmp_path / "broken.jsonl").write_text('{"qid": "a", "score": 1, "label": 1}\n{"qid": \n')
    with pytest.raises(DataError, match=r"line 2: broken JSON.*Correct the row, or remove it"):
        read_labelled(ScoreFile.open(tmp_path / "broken.jsonl"))
