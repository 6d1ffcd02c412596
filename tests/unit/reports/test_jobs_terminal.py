"""What people see of jobs."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from icalib.core.cluster_job import ClusterJob, JobState
from icalib.reports.jobs_terminal import JobProgress, print_jobs


def made_job(state: JobState, **facts: object) -> ClusterJob:
    known = {"started": time.time() - 75, "ended": None, "message": "", "exit_code": None, **facts}
    command = "icalib run icast --data /pools"
    return ClusterJob(id="icast-0a1b2c3d", command=command, work="0a1b2c3d", state=state, **known)  # pyright: ignore


def console(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), width=80, force_terminal=terminal, color_system=None)


def shown(on: Console) -> str:
    assert isinstance(on.file, io.StringIO)
    return on.file.getvalue()


def test_a_table_has_one_line_a_job() -> None:
    on = console(terminal=False)
    ended = made_job("failed", started=1_700_000_000.0, ended=1_700_000_250.0)
    long = ClusterJob(**{**made_job("running").__dict__, "command": "icalib run icast " + "--set a=b " * 40})
    print_jobs([ended, long], "http://127.0.0.1:8265", on)
    title, _, header, _, first, second, *rest = shown(on).splitlines()
    assert title.strip() == "Jobs at http://127.0.0.1:8265"
    assert header.split() == ["id", "state", "since", "time", "command"]
    assert "icast-0a1b2c3d" in first
    assert "failed" in first
    assert "4 min 10 s" in first
    assert "running" in second
    assert "1 min 15 s" in second
    assert "…" in second
    assert "".join(rest).strip() == ""


def test_without_a_terminal_every_change_is_a_line_and_the_log_is_output(capsys: pytest.CaptureFixture[str]) -> None:
    on = console(terminal=False)
    with JobProgress("Ctrl-C leaves it running", on) as progress:
        progress.state(made_job("pending"))
        progress.state(made_job("pending"))
        progress.state(made_job("running"))
        progress.line("teacher …")
        progress.state(made_job("failed", ended=time.time(), exit_code=3, message="failed with exit code 3\nlog"))
    lines = shown(on).splitlines()
    assert [line.split()[1] for line in lines] == ["pending", "running", "failed"]
    assert lines[-1].endswith("exit code 3")
    assert capsys.readouterr().out == "teacher …\n"


def test_a_job_without_a_process_says_why() -> None:
    on = console(terminal=False)
    with JobProgress("", on) as progress:
        progress.state(made_job("failed", ended=time.time(), message="no node has spot: 1\nmore"))
    assert "no node has spot: 1\n" in shown(on)
    assert "more" not in shown(on)


def test_on_a_terminal_the_state_is_one_line_that_goes() -> None:
    on = console(terminal=True)
    with JobProgress("Ctrl-C leaves it running " + "x" * 100, on) as progress:
        progress.state(made_job("running"))
        time.sleep(0.7)  # the display refreshes twice a second
        assert "1 min 1" in shown(on)
        assert "Ctrl-C leaves it running" in shown(on)
        assert "…" in shown(on)
        assert "\n" not in shown(on)
        progress.state(made_job("succeeded", ended=time.time()))
    assert "icast-0a1b2c3d succeeded  1 min 1" in shown(on)
