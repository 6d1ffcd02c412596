"""The papers' tables as data: what is printed, which rows are chosen, and which files are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from icalib.core.errors import SettingError
from icalib.tables.table import load_table


@pytest.mark.parametrize(
    ("name", "label", "place", "metric", "value"),
    [
        ("icast-table2", "IART", ("MSDialog", None, 0.01), "P", 22.18),
        ("icast-table2", "ICAST", ("MANtIS", None, 0.1), "MAP", 88.59),
        ("icast-table2", "BERT_FP", ("MANtIS", None, 0.05), "R@1", 80.22),
        ("icast-table3", "-ICGE-ALC", ("MSDialog", None, 0.1), "F1", 64.18),
        ("gpf-table1", "GPF-BERT", ("UDC", None, None), "ECE", (0.016, 0.002)),
        ("gpf-table2", "Ensemble", ("MSDialog", "MANtIS", None), "R@1", (0.369, 0.020)),
        ("gpf-table2", "GPF-BERT", ("UDC", "MANtIS", None), "ECE", (0.400, 0.045)),
        ("gpf-table3", "GPF-BERT", ("MSDialog", None, None), "ratio", 1.16),
        ("pg-table1", "PG-DRR", ("MANtIS", None, None), "R@1", (0.606, 0.016)),
        ("pg-table2", "Ensemble", ("MSDialog", None, None), "parameters", 514.56),
        ("pg-table3", "PG-DRR", ("MANtIS", "MSDialog", None), "ECE", (0.091, 0.002)),
        ("pg-table4", "PG-DRR", ("MSDialog", None, None), "ECE", (0.110, 0.006)),
    ],
)
def test_published_values(name: str, label: str, place: object, metric: str, value: object) -> None:
    (row,) = [row for row in load_table(name).rows if row.label == label]
    (published,) = [one for one in row.published if (one.corpus, one.test, one.labelled) == place]
    assert published.values[metric] == value


def test_rows_are_chosen_by_label_or_method() -> None:
    table = load_table("icast-table2")
    assert [row.label for row in table.chosen(["icast-teacher", "bert_fp", "BERT"]).rows] == [
        "BERT_FP", "BERT", "ICAST (Teacher)",
    ]  # fmt: skip
    with pytest.raises(SettingError, match="the table has no row bart"):
        table.chosen(["bart"])
    ablation = load_table("icast-table3")  # several rows of one method
    assert [row.label for row in ablation.chosen(["icast", "-icge"]).rows] == ["ICAST", "-ICGE"]


def rows(*published: object) -> dict[str, object]:
    return {"rows": [{"label": "A", "method": "bert", "published": list(published)}]}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rows": [{"label": "A", "methd": "bert"}]}, "rows.0.methd"),
        ({"metrics": ["F1", "ratio"]}, "metrics: `ratio` is unknown"),
        ({"rows": [{"label": label, "method": "bert"} for label in "Aa"]}, "labels must be distinct"),
        ({"corpora": ["D"], **rows({"corpus": "C", "values": {"F1": 1}})}, "`A`: `C` is unknown"),
    ],
)
def test_a_bad_file_is_named_with_its_key(tmp_path: Path, changes: Any, said: str) -> None:
    base = {"title": "T", "source": "S", "kind": "metrics", "metrics": ["F1"], **rows()}
    path = tmp_path / "mine.yaml"
    path.write_text(changes if isinstance(changes, str) else yaml.safe_dump({**base, **changes}))
    with pytest.raises(SettingError) as error:
        load_table(str(path))
    assert str(path) in str(error.value)
    assert said in str(error.value)
