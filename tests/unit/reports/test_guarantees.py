from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from unit.metrics.made_predictions import simulated_table
from unit.reports.fake_runs import write_runs

from icalib.core.run_folder import RunFolder
from icalib.pipeline.guarantees import controls
from icalib.reports.guarantees import print_promises, print_promises_elsewhere, promises
from icalib.reports.html import write_report


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path)
    folder.write_table("predictions/validation.parquet", simulated_table(400, seed=1, num_candidates=3))
    folder.write_table("predictions/test.parquet", simulated_table(400, seed=2, num_candidates=3))
    return folder


def printed(run: RunFolder, data: str | None = None) -> str:
    text = io.StringIO()
    console = Console(file=text, width=160)
    if data is None:
        print_promises(run, console)
    else:
        print_promises_elsewhere(run, data, console)
    return text.getvalue()


def test_promises_that_can_be_kept_have_a_threshold(run: RunFolder) -> None:
    kept = {row.allowed: row for row in promises(run)}["20%"]
    assert (kept.outcome, float(kept.threshold)) == (
        "at most 20% wrong",
        pytest.approx(controls(run)[2].threshold, abs=1e-3),
    )
    assert kept.threshold in printed(run)
    assert kept.measured in printed(run)


def test_promises_that_cannot_be_kept_say_how_many_pools_they_need(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.write_table("predictions/test.parquet", simulated_table(30, seed=1))
    outcome = promises(run)[0].outcome
    assert outcome.startswith("no threshold can promise at most 5% wrong answers with 15 pools")  # half of them
    assert outcome in " ".join(printed(run).split())


def test_promises_are_measured_on_other_pools(run: RunFolder) -> None:
    run.write_table("shift/other/predictions.parquet", simulated_table(50, seed=3, num_candidates=30))
    shown = printed(run, "other")
    assert "promises on other" in shown
    assert "measured on 50 pools" in shown


def test_the_page_has_the_table(tmp_path: Path) -> None:
    page = write_report(write_runs(tmp_path), tmp_path / "report.html", "desk").read_text()
    assert "What can be promised" in page
    assert "no threshold can promise at most 5% wrong answers" in page
