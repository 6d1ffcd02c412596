from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from unit.metrics.made_predictions import simulated_table
from unit.reports.fake_runs import write_runs

from icalib.core.run_folder import RunFolder
from icalib.metrics.risk_control import RiskControl
from icalib.pipeline.guarantees import controls
from icalib.reports.guarantees import print_promises, print_promises_elsewhere, promises, refusals
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
    kept = {row.allowed: row for row in promises(controls(run))}["20%"]
    assert float(kept.threshold) == pytest.approx(controls(run)[2].threshold, abs=1e-3)
    assert kept.threshold in printed(run)
    assert kept.measured in printed(run)


def test_promises_that_cannot_be_kept_are_no_rows_and_say_why(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.write_table("predictions/test.parquet", simulated_table(30, seed=1))
    assert promises(controls(run)) == []
    (line,) = refusals({"bert": controls(run)})
    assert "5%, 10% and 20%" in line
    assert line.removeprefix("No promise for bert: ") in " ".join(printed(run).split())


def test_methods_that_promise_nothing_for_the_same_reason_share_a_line() -> None:
    hopeless = [_refused(max_error) for max_error in (0.05, 0.1, 0.2)]
    close = [_refused(0.05), _refused(0.1, num_needed=480)]
    lines = refusals({"bm25": hopeless, "bi-encoder": hopeless, "bert": close})
    assert [line.partition(":")[0] for line in lines] == ["No promise for bm25 and bi-encoder", "No promise for bert"]
    assert "480 for 10%" in lines[1]


def _refused(max_error: float, num_needed: int | None = None) -> RiskControl:
    return RiskControl(
        max_error=max_error,
        confidence=0.9,
        threshold=None,
        num_pools=187,
        num_answered=4,
        num_wrong=3,
        num_needed=num_needed,
    )


def test_promises_are_measured_on_other_pools(run: RunFolder) -> None:
    run.write_table("shift/other/predictions.parquet", simulated_table(50, seed=3, num_candidates=30))
    shown = printed(run, "other")
    assert "promises on other" in shown
    assert "measured on 50 pools" in shown


def test_the_page_has_the_table(tmp_path: Path) -> None:
    page = write_report(write_runs(tmp_path), tmp_path / "report.html", "desk").read_text()
    assert "What can be promised" in page
    assert "No promise for" in page
