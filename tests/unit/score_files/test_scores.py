from __future__ import annotations

import csv
import json
import random
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.scored_pools import score_rows, scored_pools, write_scores
from scipy.special import expit

from icalib.core.errors import DamagedFileError, DataError, RunFolderError, SettingError, StorageError
from icalib.score_files import scores as module
from icalib.score_files.calibrator import Calibrator, calibrate
from icalib.score_files.scores import Columns, apply, read_labelled, read_score_rows, read_scores

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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"score": "high"}, 'line 3, field `score`: found "high". Expected: a valid number'),
        ({"score": float("nan")}, "field `score`: found NaN. Expected: a finite number"),
        ({"score": True}, "field `score`: found true. Expected: a number"),
        ({"score": "1_000"}, 'field `score`: found "1_000". Expected: a number'),
        ({"query": float("nan")}, "field `query`: found NaN. Expected: a name"),
        ({"label": 2}, "field `label`: found 2. Expected: 0 or 1"),
        ({"candidate": "d0"}, "line 3: candidate 'd0' of query 'q00000' occurs twice"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    rows = [*ROWS[:2], {**ROWS[2], **change}, *ROWS[3:]]
    with pytest.raises(DataError) as error:
        read_labelled(write_scores(tmp_path / "scores.jsonl", rows), COLUMNS)
    assert message in str(error.value)


def test_a_whole_number_is_one_name_however_it_is_written(tmp_path: Path) -> None:
    """A column of numbers with gaps is of floats in pandas, and so is what it writes."""
    rows = [{"query": query, "candidate": index, "score": 0.5} for index, query in enumerate((17, 17.0, "17"))]
    whole = {"17": {"0": 0.5, "1": 0.5, "2": 0.5}}
    assert read_scores(write_scores(tmp_path / "scores.jsonl", rows), COLUMNS) == whole
    rows = [{**row, "query": 17.0, "candidate": float(row["candidate"])} for row in rows]
    assert read_scores(write_scores(tmp_path / "scores.parquet", rows), COLUMNS) == whole


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("scores.jsonl", None, "the file doesn't exist"),
        ("scores.csv", b"query,candidate,score,label\n", "the file has no rows"),
        ("scores.jsonl", b'{"query": \n', r"line 1: broken JSON.*Correct the row, or remove it"),
        ("scores.csv", b"query,candidate,score,label\nq,d\xff,1,1\n", "is not UTF-8"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, name: str, data: bytes | None, message: str) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=message):
        read_labelled(tmp_path / name, COLUMNS)


FITTED_ON = scored_pools(300, none_right=0.02)  # too few without a right candidate for a softmax
NEW = scored_pools(60, seed=5)
NEW_ROWS = score_rows(NEW)
FITTED = calibrate(FITTED_ON)


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_ROWS", 7)


def test_all_formats_keep_their_columns_and_get_the_same_probabilities(tmp_path: Path) -> None:
    expected = FITTED.prob(NEW.logit)
    for suffix in ("parquet", "jsonl", "csv"):
        done = apply(FITTED, write_scores(tmp_path / f"new.{suffix}", NEW_ROWS), tmp_path / f"out.{suffix}", COLUMNS)
        assert (done.num_pairs, done.notes) == (360, ())
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.drop_columns(["calibrated_prob"]).equals(pa.Table.from_pylist(NEW_ROWS))
    assert table["calibrated_prob"].to_pylist() == pytest.approx(expected)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line.pop("calibrated_prob") for line in lines] == pytest.approx(expected)
    assert lines == NEW_ROWS
    with (tmp_path / "out.csv").open(newline="") as file:
        fields = list(csv.DictReader(file))
    assert [float(row.pop("calibrated_prob")) for row in fields] == pytest.approx(expected)
    assert fields == [{name: str(value) for name, value in row.items()} for row in NEW_ROWS]


def test_a_query_of_parquet_may_be_a_date_in_both_commands(tmp_path: Path) -> None:
    days = {name: date(2020, 1, 1) + timedelta(n) for n, name in enumerate(dict.fromkeys(r["query"] for r in NEW_ROWS))}
    path = write_scores(tmp_path / "new.parquet", [{**row, "query": days[row["query"]]} for row in NEW_ROWS])
    assert read_scores(path, COLUMNS).keys() == {str(day) for day in days.values()}
    by_query = calibrate(scored_pools(none_right=0.0, levels=2.0))
    assert apply(by_query, path, tmp_path / "out.parquet", COLUMNS).num_pairs == 360


@pytest.mark.parametrize("suffix", ["parquet", "jsonl", "csv"])
def test_probabilities_over_a_query_are_those_of_its_rows_wherever_they_are(tmp_path: Path, suffix: str) -> None:
    fitted = calibrate(scored_pools(none_right=0.0, levels=2.0))
    rows = random.Random(0).sample(NEW_ROWS, len(NEW_ROWS))
    out = tmp_path / f"out.{suffix}"
    done = apply(fitted, write_scores(tmp_path / f"new.{suffix}", rows), out, COLUMNS)
    names = [(row["query"], row["candidate"]) for row in NEW_ROWS]
    expected = dict(zip(names, fitted.prob(NEW.logit, NEW.pool), strict=True))
    written = {(row["query"], row["candidate"]): float(row["calibrated_prob"]) for _, row in read_score_rows(out)}
    assert written == pytest.approx(expected)
    assert done.notes == ()
    few = write_scores(tmp_path / f"few.{suffix}", [row for row in rows if row["candidate"] != "d0"])
    assert (
        "100% of the queries have another number of candidates than the 6 that"
        in apply(fitted, few, out, COLUMNS).notes[0]
    )
    nameless = write_scores(tmp_path / f"nameless.{suffix}", [{"score": row["score"]} for row in rows])
    with pytest.raises(DataError, match="no column `query`"):
        apply(fitted, nameless, out, COLUMNS)


def test_json_is_written_as_others_read_it(tmp_path: Path) -> None:
    text = '"Ünï 打\u2028 \\ud800"'
    (tmp_path / "new.jsonl").write_text(f'{{"score": 0.5, "text": {text}, "x": NaN, "y": [1, {{"z": -Infinity}}]}}\n')
    apply(FITTED, tmp_path / "new.jsonl", tmp_path / "out.jsonl", COLUMNS)
    written = (tmp_path / "out.jsonl").read_text()
    assert f'"text": {text}, "x": null, "y": [1, {{"z": null}}]' in written
    assert json.loads(written)["text"] == json.loads(text)


@pytest.mark.parametrize("suffix", ["parquet", "jsonl", "csv"])
@pytest.mark.parametrize(
    ("score", "message"), [(float("inf"), "finite number"), (None, "a (finite|valid) number"), ("high", "number")]
)
def test_a_bad_score_is_named_and_nothing_is_written(tmp_path: Path, suffix: str, score: object, message: str) -> None:
    rows = [{**row, "score": str(row["score"]) if score == "high" else row["score"]} for row in NEW_ROWS]
    rows[203]["score"] = score
    path = write_scores(tmp_path / f"new.{suffix}", rows)
    with pytest.raises(DataError, match=message) as error:
        apply(FITTED, path, tmp_path / f"out.{suffix}", COLUMNS)
    assert error.value.field == "score"
    assert error.value.line == {"parquet": 204, "jsonl": 204, "csv": 205}[suffix]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", ["parquet", "jsonl", "csv"])
def test_columns_that_do_not_fit_are_refused(tmp_path: Path, suffix: str) -> None:
    path, out = write_scores(tmp_path / f"new.{suffix}", NEW_ROWS), tmp_path / f"out.{suffix}"
    with pytest.raises(DataError, match="no column `cosine` among query, candidate, score, label, note"):
        apply(FITTED, path, out, Columns(score="cosine"))
    apply(FITTED, path, out, COLUMNS)
    with pytest.raises(DataError, match="has a column calibrated_prob already"):
        apply(FITTED, out, tmp_path / f"twice.{suffix}", COLUMNS)


def test_a_tsv_becomes_a_tsv(tmp_path: Path) -> None:
    path = tmp_path / "new.tsv"
    path.write_text("query\tcandidate\tscore\nq\ta\t0.5\nq\tb\t1.5\n")
    with pytest.raises(SettingError, match=r"becomes a file that ends in \.tsv"):
        apply(FITTED, path, tmp_path / "out.csv", COLUMNS)
    apply(FITTED, path, tmp_path / "out.tsv", COLUMNS)
    assert (tmp_path / "out.tsv").read_text().startswith("query\tcandidate\tscore\tcalibrated_prob\n")


def test_a_carriage_return_in_a_cell_ends_no_row(tmp_path: Path) -> None:
    rows = [{**row, "candidate": f"{row['candidate']}\rand more"} for row in NEW_ROWS]
    with (tmp_path / "scores.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    apply(FITTED, tmp_path / "scores.csv", tmp_path / "out.csv", COLUMNS)
    assert [row["candidate"] for _, row in read_score_rows(tmp_path / "out.csv")] == [row["candidate"] for row in rows]
    assert b"\r\n" not in (tmp_path / "out.csv").read_bytes()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_a_csv_keeps_its_delimiter_and_mark(tmp_path: Path, delimiter: str, encoding: str) -> None:
    path, out = tmp_path / "new.csv", tmp_path / "out.csv"
    rows = [["query", "candidate", "score", "two\nlines"], ["q", "a, b; c\td|e", "0.5", "x"], ["q", "f", "1.5", "y"]]
    with path.open("w", newline="", encoding=encoding) as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)
    apply(FITTED, path, out, COLUMNS)
    assert out.read_bytes()[:3] == path.read_bytes()[:3]
    with out.open(newline="", encoding=encoding) as file:
        written = list(csv.reader(file, delimiter=delimiter))
    assert [row[:-1] for row in written] == rows
    assert written[0][-1] == "calibrated_prob"


@pytest.mark.parametrize(
    ("header", "found"), [("score,a,a", "are named `a`"), ("score,a, a ", "are named `a`"), ("score,,", "have no name")]
)
def test_a_csv_with_two_columns_of_one_name_is_refused(tmp_path: Path, header: str, found: str) -> None:
    (tmp_path / "new.csv").write_text(f"{header}\n0.5,a,b\n")
    with pytest.raises(DataError, match=f"line 1: 2 columns {found}"):
        apply(FITTED, tmp_path / "new.csv", tmp_path / "out.csv", COLUMNS)
    assert not (tmp_path / "out.csv").exists()


def test_a_parquet_with_two_columns_of_one_name_is_refused(tmp_path: Path) -> None:
    values = [pa.array([name]) for name in ("q", "d")] + [pa.array([0.5]), pa.array([1.5]), pa.array([1])]
    table = pa.table(values, names=["query", "candidate", "score", "score", "label"])
    pq.write_table(table, tmp_path / "new.parquet")
    for read in (
        lambda path: read_labelled(path, COLUMNS),
        lambda path: apply(FITTED, path, tmp_path / "out.parquet", COLUMNS),
    ):
        with pytest.raises(DataError, match=r"new\.parquet: 2 columns are named `score`"):
            read(tmp_path / "new.parquet")


def test_the_index_that_pandas_writes_stays_and_a_score_that_is_no_probability_is_named(tmp_path: Path) -> None:
    path, out = tmp_path / "new.csv", tmp_path / "out.csv"
    path.write_text(",query,candidate,score\n7,q,a,0.5\n8,q,b,1.5\n")
    apply(FITTED, path, out, COLUMNS)
    assert [line.split(",")[:2] for line in out.read_text().splitlines()] == [["", "query"], ["7", "q"], ["8", "q"]]
    probabilities = FITTED.model_copy(update={"scale": "probability"})
    with pytest.raises(DataError, match=r"found the score 1\.5 where probabilities") as caught:
        apply(probabilities, path, tmp_path / "other.csv", COLUMNS)
    assert (caught.value.path, caught.value.line, caught.value.field) == (str(path), 3, "score")
    pq.write_table(
        pa.table({"query": ["q", "q"], "candidate": ["a", "b"], "score": [0.5, 1.5]}), tmp_path / "p.parquet"
    )
    with pytest.raises(DataError, match=r"found the score 1\.5 where probabilities") as caught:
        apply(probabilities, tmp_path / "p.parquet", tmp_path / "other.parquet", COLUMNS)
    assert (caught.value.path, caught.value.line) == (str(tmp_path / "p.parquet"), 2)


def test_scores_unlike_those_fitted_on_are_pointed_out(tmp_path: Path) -> None:
    def notes(change: float, wide: bool = True) -> str:
        rows = [{"score": change + row["score"] if wide else float(expit(row["score"]))} for row in NEW_ROWS]
        done = apply(FITTED, write_scores(tmp_path / "new.jsonl", rows), tmp_path / "out.jsonl", COLUMNS)
        return " ".join(done.notes)

    assert notes(0.0) == ""
    assert "100% of the scores are outside of" in notes(1000.0)
    assert "all scores are from 0 to 1, but the calibrator was fitted on" in notes(0.0, wide=False)
    fitted = calibrate(scored_pools(40), "logit").model_copy(update={"scale": "probability"})
    path = write_scores(tmp_path / "new.jsonl", NEW_ROWS)
    with pytest.raises(DataError, match=r"where probabilities from 0 to 1 were expected"):
        apply(fitted, path, tmp_path / "other.jsonl", COLUMNS)
    assert not (tmp_path / "other.jsonl").exists()


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = write_scores(tmp_path / "new.jsonl", NEW_ROWS)
    with pytest.raises(SettingError, match=r"new.jsonl becomes a file that ends in .jsonl"):
        apply(FITTED, path, tmp_path / "out.parquet", COLUMNS)
    with pytest.raises(SettingError, match="is the score file itself"):
        apply(FITTED, path, path, COLUMNS)
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(StorageError, match=r"folder.jsonl': it is a folder. Name a file"):
        apply(FITTED, path, tmp_path / "folder.jsonl", COLUMNS)
    (tmp_path / "document.json").write_text('[{"score": 1}]')
    with pytest.raises(DataError, match=r"found a JSON document. Write one JSON object a line"):
        apply(FITTED, tmp_path / "document.json", tmp_path / "out.jsonl", COLUMNS)
    assert not list(tmp_path.glob("out.*"))


def test_a_folder_that_is_no_calibrator_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"it has no calibrator.json"):
        Calibrator.load(tmp_path)
    FITTED.save(tmp_path)
    file = tmp_path / "calibrator.json"
    value = json.loads(file.read_text())
    for change in ({"lowest": 0.1}, {"checksum": ""}):
        file.write_text(json.dumps({**value, **change}))
        with pytest.raises(DamagedFileError, match="has other content than was written"):
            Calibrator.load(tmp_path)
    del value["checksum"]
    for change in ({"version": 2}, {"map": {}}, {"metrics": 1}):
        file.write_text(json.dumps({**value, **change}))
        with pytest.raises(DamagedFileError, match="is not a calibrator"):
            Calibrator.load(tmp_path)
    file.write_text("{")
    with pytest.raises(DamagedFileError, match="can't be read"):
        Calibrator.load(tmp_path)
