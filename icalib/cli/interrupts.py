"""Ctrl-C and SIGTERM: both end a verb with the line that says how to resume, and with the exit code that shells expect.

Typer would end silently on Ctrl-C, and Python would die of SIGTERM without cleaning up.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import typer

from icalib.core.interrupts import Terminated

_AGAIN_S = 0.05
_RESUME = "Run the same command again to resume; finished stages and checkpoints are reused."


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
                if isinstance(error, KeyboardInterrupt) and not received:
                    received.append(signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)
                if not received:
                    raise
                _leave(128 + received[0], error)

    return verb


def _leave(code: int, error: BaseException) -> None:
    typer.echo(f"\n{'Terminated' if code == 128 + signal.SIGTERM else 'Interrupted'}. {_RESUME}", err=True)
    raise SystemExit(code) from error


@contextmanager
def _handlers() -> Generator[list[int], None, None]:
    """Raise KeyboardInterrupt on both signals, and yield the list of those received; the earlier handlers return.

    A signal that the parent process has set to be ignored, as nohup does, stays ignored. One that arrives where Python
    ignores exceptions, as in the callbacks of weak references, is raised once more.
    """
    received: list[int] = []
    again: list[threading.Timer] = []
    earlier_hook = sys.unraisablehook

    def stop(number: int, frame: Any) -> None:
        received.append(number)
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    def ignored(what: Any) -> None:
        if received and isinstance(what.exc_value, KeyboardInterrupt):
            again.append(threading.Timer(_AGAIN_S, os.kill, (os.getpid(), received[0])))
            again[-1].start()
        else:
            earlier_hook(what)

    earlier = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    replaced = [
        number for number, handler in earlier.items() if handler in (signal.SIG_DFL, signal.default_int_handler)
    ]
    if threading.current_thread() is not threading.main_thread():  # only there may handlers be set
        replaced = []
    for number in replaced:
        signal.signal(number, stop)
    sys.unraisablehook = ignored
    try:
        yield received
    finally:
        sys.unraisablehook = earlier_hook
        for timer in again:
            timer.cancel()
        for number in replaced:
            signal.signal(number, earlier[number])
