"""Commands of icalib in processes of their own, which start in a moment, can be killed, and leave their output.

A server process imports icalib once and is forked for each command: importing takes longer than most commands do.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIMIT_S = 60.0
"""A command that takes longer counts as hung, unless a campaign on a busy machine allows more."""


@dataclass(frozen=True)
class Ended:
    """A command that has ended: its exit code (negative: a signal that killed it), output, and what it left."""

    code: int
    out: str
    err: str
    seconds: float
    temporary: tuple[str, ...]
    """Files and folders in its folder for temporary files."""
    num_writes: int
    """How often it changed a folder: opened a file for writing, renamed, removed or made one."""

    @property
    def hung(self) -> bool:
        return self.code == -signal.SIGALRM

    @property
    def refused(self) -> bool:
        """Whether it ended with an error of icalib's own, or of the command line's."""
        return self.code == 2 and "Traceback" not in self.err and "rror: " in self.err


def run_command(arguments: Sequence[str], folder: Path, *, kill_at: int = 0, limit_s: float = LIMIT_S) -> Ended:
    """Run a command of icalib in a folder.

    Args:
        arguments: what follows `icalib` on the command line.
        folder: working directory; paths among the arguments may be relative to it.
        kill_at: kill -9 the process just before the n-th change of a folder; 0: don't.
        limit_s: kill it after this time, as hung.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["faults.preloaded"])
    with tempfile.TemporaryDirectory() as output:
        started = time.monotonic()
        process = context.Process(
            target=_command, args=(list(arguments), str(folder), output, kill_at, limit_s), daemon=True
        )
        process.start()
        process.join()
        seconds = time.monotonic() - started
        read = lambda name: (Path(output) / name).read_text(errors="replace")  # noqa: E731
        code = process.exitcode if process.exitcode is not None else -signal.SIGKILL
        left = tuple(sorted(path.name for path in (Path(output) / "tmp").iterdir()))
        writes = Path(output) / "writes"
        num_writes = writes.stat().st_size if writes.is_file() else 0
        return Ended(code, read("out"), read("err"), seconds, left, num_writes)


def _command(arguments: list[str], folder: str, output: str, kill_at: int, limit_s: float) -> None:
    """Run in the forked process: become the command."""
    temporary = Path(output) / "tmp"
    temporary.mkdir()
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
    for name, stream in (("out", 1), ("err", 2)):
        os.dup2(os.open(Path(output) / name, os.O_WRONLY | os.O_CREAT), stream)
    os.chdir(folder)
    signal.setitimer(signal.ITIMER_REAL, limit_s)  # its default action ends the process
    sys.addaudithook(_Writes(output, kill_at))
    sys.argv = ["icalib", *arguments]
    from icalib.cli import main

    try:
        main()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


class _Writes:
    """An audit hook that counts changes of folders outside of the one for output, and kills before one of them."""

    def __init__(self, output: str, kill_at: int) -> None:
        self._output, self._kill_at, self._count = output, kill_at, 0
        self._file = os.open(Path(output) / "writes", os.O_WRONLY | os.O_CREAT)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not _is_change(event, arguments) or str(arguments[0]).startswith((self._output, "/dev", "/proc")):
            return
        self._count += 1
        os.write(self._file, b".")
        if self._count == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


def _is_change(event: str, arguments: tuple[Any, ...]) -> bool:
    if event == "open":
        flags = arguments[2] or 0
        return isinstance(arguments[0], str | bytes) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    return event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "shutil.rmtree")


def renewed(folder: Path, pristine: Path) -> Path:
    """Replace a folder by a copy of another."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(pristine, folder)
    return folder
