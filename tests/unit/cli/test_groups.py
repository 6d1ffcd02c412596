"""Options in groups: what Typer sees, and what the function receives."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer

from icalib.cli.groups import with_groups


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
    typer.echo(f"{method} {machines} {seed}")


def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command()(with_groups(run))
    monkeypatch.setattr(sys, "argv", ["run", *words])
    with pytest.raises(SystemExit) as stop:
        app()
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


def test_fields_are_options_and_arrive_as_one_value(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = call(monkeypatch, capsys, "icast", "--workers", "2", "--fast")
    assert code == 0
    assert out == "icast MoreMachines(workers=2, address=None, fast=True) 1\n"
