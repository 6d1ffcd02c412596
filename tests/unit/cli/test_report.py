"""`icalib report` on a folder of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def test_report_says_where_the_latest_comparison_of_an_experiment_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, icalib: Any
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    latest = tmp_path / "compare-desk.html"
    latest.write_text("")
    code, _, err = icalib("report", tmp_path)
    assert (code, opened) == (0, [])
    assert err.splitlines() == [f"report: {latest}", f"curves: tensorboard --logdir {tmp_path}"]
    code, _, err = icalib("report", tmp_path, "--open")  # somebody else may have written the page
    assert (code, opened) == (0, [])
    assert "not opened" in err
    code, _, err = icalib("report", tmp_path, "--out", tmp_path / "chosen.html")
    assert code == 2
    assert "Name runs, or leave --out out" in err
    assert not (tmp_path / "chosen.html").exists()
