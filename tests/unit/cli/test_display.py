"""How verbs show what they do, and where their views are."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import typer

from icalib.cli import main
from icalib.cli.groups import with_groups
from icalib.core.display import Display, display


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["icalib", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


def test_options_reach_what_shows_and_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Display] = []

    def verb() -> None:
        seen.append(display())

    app = typer.Typer()
    app.command()(with_groups(verb))
    for words in ([], ["--quiet", "--wide"], ["--log-format", "json"]):
        monkeypatch.setattr(sys, "argv", ["verb", *words])
        with pytest.raises(SystemExit):
            app()
    assert seen == [Display(), Display(quiet=True, wide=True), Display(log_format="json")]
    assert display() == Display()


def test_report_says_where_the_latest_comparison_of_an_experiment_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    latest = tmp_path / "compare-desk.html"
    latest.write_text("")
    assert call(monkeypatch, "report", str(tmp_path)) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"report: {latest}",
        f"curves: tensorboard --logdir {tmp_path}",
    ]
    assert opened == []
    assert call(monkeypatch, "report", str(tmp_path), "--open") == 0
    assert opened == [latest.as_uri()]
