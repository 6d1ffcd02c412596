"""In a notebook progress and tables are plain text, as everywhere else: not one HTML output a line, not nothing."""

from __future__ import annotations

import builtins
from io import StringIO

import pytest
from rich.console import Console

from icalib.api.results import printed
from icalib.reports.console import people_console


class ZMQInteractiveShell:
    """The class by whose name Rich knows that it runs in Jupyter."""


@pytest.fixture
def _jupyter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    assert Console(file=StringIO()).is_jupyter


@pytest.mark.usefixtures("_jupyter")
def test_the_value_of_a_cell_is_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as kernels of Jupyter have it
    assert printed(lambda console: console.print("[bold]a table")) == "a table"


@pytest.mark.usefixtures("_jupyter")
def test_progress_is_plain_lines_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    people_console().print("a line")
    assert capsys.readouterr().err == "a line\n"
