"""docs/results.md: its tables are those of docs/results/*.yaml, and finished runs become such a table."""

from __future__ import annotations

import importlib.util
import statistics
import sys
from pathlib import Path
from types import ModuleType

import pytest
from unit.reports.fake_runs import write_pools, write_run

from icalib.core.errors import SettingError
from icalib.reports.comparison import format_value

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def results() -> ModuleType:
    spec = importlib.util.spec_from_file_location("results_page", ROOT / "docs" / "results.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date_and_has_every_table_once_and_none_by_hand(results: ModuleType) -> None:
    text = results.PAGE.read_text(encoding="utf-8")
    assert results.page_with_tables(text) == text, "run `make results`"
    assert sorted(results.named_tables(text)) == sorted(path.stem for path in results.TABLES.glob("*.yaml"))
    by_hand = results._MARKED.sub("", text)
    assert [line for line in by_hand.splitlines() if line.startswith("|") and "0." in line] == []


def test_finished_runs_become_a_table(results: ModuleType, tmp_path: Path) -> None:
    data = write_pools(tmp_path / "desk")
    runs = [write_run(tmp_path / "runs", data, "bm25", 1)]
    runs += [write_run(tmp_path / "runs", data, "icast", seed) for seed in (1, 2)]
    results.write_table(tmp_path / "mine.yaml", results.collected([run.path for run in runs], ["R@1", "NLL"]))
    table = results.read_table(tmp_path / "mine.yaml")
    assert table.columns == ["R@1", "NLL", results.SELECTED]
    assert table.date == "2026-08-01"
    assert table.versions == {"icalib": "0.1.0", "torch": "2.13.0", "ray": "2.60.0"}
    assert len(table.command.splitlines()) == 3
    untrained, trained = table.rows
    assert (untrained["method"], untrained["seeds"]) == ("bm25", 1)
    assert untrained["R@1"] == pytest.approx(runs[0].result["test"]["R@1"], abs=1e-4)
    recalls = [run.result["test"]["R@1"] for run in runs[1:]]
    assert trained["R@1"] == pytest.approx([statistics.fmean(recalls), statistics.stdev(recalls)], abs=1e-4)

    (tmp_path / "page.md").write_text("# Mine\n\n<!-- table mine -->\nold\n<!-- end of table -->\n")
    page = results.page_with_tables((tmp_path / "page.md").read_text(), tmp_path)
    assert "old" not in page
    assert f"| bm25 | 1 | {format_value(untrained['R@1'])} | {format_value(untrained['NLL'])} | – |" in page
    assert f"± {format_value(trained['R@1'][1])}" in page
    assert results.page_with_tables(page, tmp_path) == page


def test_runs_on_several_pool_sets_are_refused(results: ModuleType, tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "runs", write_pools(tmp_path / name), "bm25", 1) for name in ("desk", "chat")]
    with pytest.raises(SettingError, match="the runs are on desk, chat"):
        results.collected([run.path for run in runs])


@pytest.mark.parametrize(
    ("row", "message"), [("{method: bert, R@1: 0.5}", "seeds"), ("{method: bert, seeds: 1, R@2: 0.5}", "R@2")]
)
def test_a_wrong_row_is_named(results: ModuleType, tmp_path: Path, row: str, message: str) -> None:
    path = tmp_path / "mine.yaml"
    head = "command: icalib\ndata: desk\ndate: '2026-01-01'\nversions: {}\ncolumns: [R@1]\n"
    path.write_text(f"{head}rows:\n- {row}\n")
    with pytest.raises(SettingError, match=message):
        results.read_table(path)
