"""Options in groups and of every verb: what Typer sees, and what the function receives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from icalib.cli.groups import with_groups
from icalib.core.display import Display, display


@dataclass(frozen=True)
class Machines:
    workers: Annotated[int, typer.Option(help="Workers.")]
    address: Annotated[str | None, typer.Option(help="Address.")] = None


@dataclass(frozen=True)
class MoreMachines(Machines):
    fast: Annotated[bool, typer.Option("--fast")] = False


def run(
    method: Annotated[str, typer.Argument()], *, machines: MoreMachines, seed: Annotated[int, typer.Option()] = 1
) -> None:
    """Run it."""
    typer.echo(f"{method} {machines} {seed} {display()}")


def test_fields_are_options_and_arrive_as_one_value() -> None:
    app = typer.Typer()
    app.command()(with_groups(run))
    told = CliRunner().invoke(app, ["icast", "--workers", "2", "--fast", "--quiet"])
    machines, shown = MoreMachines(workers=2, fast=True), Display(quiet=True)
    assert told.stdout == f"icast {machines} 1 {shown}\n"
    assert display() == Display()
    assert CliRunner().invoke(app, ["icast"]).exit_code == 2  # --workers is missing


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
    assert icalib("report", tmp_path, "--open")[0] == 0
    assert opened == [latest.as_uri()]
