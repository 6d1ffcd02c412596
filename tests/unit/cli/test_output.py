"""What verbs print for people besides their results."""

from __future__ import annotations

import sys

import pytest

from icalib.cli.output import starting
from icalib.core.display import Display, showing


@pytest.mark.parametrize("quiet", [True, False])
def test_quiet_verbs_do_not_say_that_they_start(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, quiet: bool
) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with showing(Display(quiet=quiet)):
        starting("prepare chats.csv")
    assert bool(capsys.readouterr().err) is not quiet
