"""`icalib report`: where it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unit.reports.fake_runs import write_pools, write_run


def test_where_the_default_can_not_be_written_out_is_named(tmp_path: Path, icalib: Any) -> None:
    run = write_run(tmp_path / "runs", write_pools(tmp_path / "desk"), "bm25", 1)
    (run.path / "report.html").mkdir()
    code, _, err = icalib("report", run.path)
    assert code == 2
    assert "report.html': it is a folder. Name a file. --out writes it elsewhere." in err
    code, _, err = icalib("report", run.path, "--out", tmp_path / "report.html")
    assert (code, "--out" in err) == (0, False)
