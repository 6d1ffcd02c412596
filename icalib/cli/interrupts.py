"""Ctrl-C and SIGTERM: both end a verb with the line that says how to resume, and with the exit code that shells expect.

Typer would end silently on Ctrl-C, and Python would die of SIGTERM without cleaning up.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import typer

from icalib.core.process import Terminated

_RESUME = "Run the same command again to resume; what is finished is reused."


def resumable(function: Callable[..., None]) -> Callable[..., None]:
    """Return a verb that reports being interrupted by a signal, and then exits with 128 plus the signal's number."""

    @wraps(function)
    def verb(**values: Any) -> None:
        with _handlers() as received:
            try:
                function(**values)
            except typer.Exit:  # the verb has reported it in its own words
                raise
            except BaseException as error:  # libraries replace our exception by their own
                if not received and not isinstance(error, KeyboardInterrupt):
                    raise
                raised = signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT
                number = received[0] if received else raised
                typer.echo(f"\n{'Terminated' if number == signal.SIGTERM else 'Interrupted'}. {_RESUME}", err=True)
                raise SystemExit(128 + number) from error

    return verb


@contextmanager
def _handlers() -> Generator[list[int], None, None]:
    """Raise KeyboardInterrupt on both signals, and yield the list of those received; once it ends, more are ignored."""
    received: list[int] = []

    def stop(number: int, frame: Any) -> None:
        received.append(number)
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    earlier: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():  # only there may handlers be set
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):  # nohup ignores some
                earlier[number] = signal.signal(number, stop)
    try:
        yield received
    finally:
        for number, handler in earlier.items():
            signal.signal(number, signal.SIG_IGN if received else handler)
