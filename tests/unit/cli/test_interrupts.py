"""Ctrl-C and SIGTERM in a verb: the line that says how to resume, and the exit code that shells expect."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator

import pytest

from icalib.cli import main
from icalib.cli.interrupts import resumable


@pytest.fixture(autouse=True)
def handled() -> Iterator[None]:
    """Python's own handlers: the background of a shell ignores Ctrl-C, and Ray, if used before, leaves its own."""
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    earlier = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield
    for number, handler in earlier.items():
        signal.signal(number, handler)


def _send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    threading.Event().wait(10)  # the handler runs in this thread


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_verb_with_the_line_that_says_how_to_resume(
    number: signal.Signals, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("icalib.data.simulate.simulate", lambda *arguments, **options: _send(number))
    monkeypatch.setattr(sys, "argv", ["icalib", "simulate", "out.jsonl"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == code
    assert "Run the same command again to resume" in capsys.readouterr().err
    # a second one, while the process exits, would only add a traceback
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == [signal.SIG_IGN] * 2


@pytest.mark.parametrize("made", [RuntimeError("a task was cancelled"), KeyboardInterrupt(), SystemExit(0)])
def test_what_a_library_makes_of_a_signal_is_reported_alike(
    made: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    def verb() -> None:
        try:
            _send(signal.SIGTERM)
        except KeyboardInterrupt as error:
            raise made from error

    with pytest.raises(SystemExit) as stop:
        resumable(verb)()
    assert stop.value.code == 143
    assert "Run the same command again to resume" in capsys.readouterr().err


def test_without_a_signal_the_earlier_handlers_return() -> None:
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    resumable(lambda: None)()
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


def test_an_ignored_signal_stays_ignored() -> None:
    earlier = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        resumable(lambda: os.kill(os.getpid(), signal.SIGINT))()
    finally:
        signal.signal(signal.SIGINT, earlier)
