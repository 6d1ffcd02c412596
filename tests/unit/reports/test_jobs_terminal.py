"""What people see of jobs."""

from __future__ import annotations

import io
import time

from rich.console import Console

from icalib.core.cluster_job import ClusterJob
from icalib.reports.cluster import print_jobs


def test_a_table_has_one_line_a_job() -> None:
    on = Console(file=io.StringIO(), width=80, color_system=None)
    started = time.time() - 75
    running = ClusterJob(
        id="icast-0a1b2c3d", command="icalib run icast " + "--set a=b " * 40, work="0a1b2c3d", state="running",
        started=started, ended=None, message="", exit_code=None,
    )  # fmt: skip
    failed = ClusterJob("icast-2", "icalib [run]", "", "failed", started, started + 250, "", 3)
    print_jobs([failed, running], "http://127.0.0.1:8265", on)
    assert isinstance(on.file, io.StringIO)
    title, _, header, _, first, second, *rest = on.file.getvalue().splitlines()
    assert title.strip() == "Jobs at http://127.0.0.1:8265"
    assert header.split() == ["id", "state", "since", "time", "command"]
    assert ("failed" in first, "4 min 10 s" in first, "[run]" in first) == (True, True, True)
    assert ("running" in second, "1 min 15 s" in second, "…" in second) == (True, True, True)
    assert "".join(rest).strip() == ""
