from __future__ import annotations

import csv
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import pytest

from icalib.core.errors import DataError
from icalib.data.schema import Pool, Utterance
from icalib.labelling.table import read_table, table_text


def test_no_cell_is_a_formula_and_texts_come_back_as_they_were(tmp_path: Path) -> None:
    texts = ["=HYPERLINK(1)", "+1 for that", "-", "@anna", "'tis", "'=1", "Restart it.", "One.\rTwo."]
    context = [Utterance(speaker="user", text="=1+1")]
    pool = Pool(pool_id="=A1", dialog_id="d", split="train", context=context, candidates=texts, label=0, domain="")
    written = table_text([pool])
    cells = [cell for row in csv.reader(StringIO(written)) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))]
    (tmp_path / "table.csv").write_text(written)
    (answer,) = read_table(tmp_path / "table.csv")
    assert (answer.pool_id, list(answer.candidates)) == ("=A1", texts)


def test_a_pasted_log_comes_back(tmp_path: Path) -> None:
    csv.field_size_limit(1 << 17)  # Python's, which an earlier test may have raised
    log = "GET / HTTP/1.1 " * 10_000
    context, texts = [Utterance(speaker="user", text=log)], ["Restart it.", log.strip()]
    pool = Pool(pool_id="p", dialog_id="d", split="train", context=context, candidates=texts, label=0, domain="")
    (tmp_path / "table.csv").write_text(table_text([pool]))
    (answer,) = read_table(tmp_path / "table.csv")
    assert list(answer.candidates) == texts


Row = tuple[str, int, str, str]
"""Pool, candidate, what is in `right`, annotator."""


def answers_of(folder: Path, rows: Sequence[Row], more: str = "") -> list[tuple[str, str, tuple[int, ...]]]:
    """The finished answers of a table: pools, annotators and the right candidates."""
    lines = [f"{pool_id},c,{number},t{number},{right},{name}\n" for pool_id, number, right, name in rows]
    (folder / "file.csv").write_text("".join(["pool_id,context,candidate,text,right,annotator\n", *lines, more]))
    found = [answer.annotation for answer in read_table(folder / "file.csv")]
    return [(one.pool_id, one.annotator, one.right) for one in found if one]


def test_empty_rows_at_the_end_of_a_spreadsheet_are_left_out(tmp_path: Path) -> None:
    rows = [("p", 1, "1", "ann"), ("p", 2, "", "ann")]
    assert answers_of(tmp_path, rows, ",,,,,\n , ,,,,\n,,,,,,,\n") == [("p", "ann", (0,))]
    with pytest.raises(DataError, match="line 4, field `candidate`: found ''"):
        answers_of(tmp_path, rows, "p,,,,,\n")


@pytest.mark.parametrize(
    ("rows", "answers"),
    [
        ([("p", 1, "", ""), ("p", 2, "1", "ann"), ("p", 3, "", "")], [("p", "ann", (1,))]),
        ([("p", 1, "", ""), ("p", 2, "1", "")], [("p", "file", (1,))]),
        (  # a name counts for its own pool alone
            [("p", 1, "", ""), ("p", 2, "1", "ann"), ("q", 1, "1", ""), ("q", 2, "", "")],
            [("p", "ann", (1,)), ("q", "file", (0,))],
        ),
        (  # two whole answers, one of them without a name
            [("p", 1, "1", "ann"), ("p", 2, "", "ann"), ("p", 1, "", ""), ("p", 2, "1", "")],
            [("p", "ann", (0,)), ("p", "file", (1,))],
        ),
    ],
)
def test_rows_without_a_name_are_the_only_annotators_of_their_pool(
    tmp_path: Path, rows: Sequence[Row], answers: list[tuple[str, str, tuple[int, ...]]]
) -> None:
    assert answers_of(tmp_path, rows) == answers


def test_rows_without_a_name_beside_two_annotators_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected all from 1 on"):
        answers_of(tmp_path, [("p", 1, "1", "ann"), ("p", 2, "1", "bob"), ("p", 3, "", "")])
