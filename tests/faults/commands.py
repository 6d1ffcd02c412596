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


class Disturbance:
    """What disturbs a command; it acts in the command's process."""

    def begin(self) -> None:
        """Act before the command begins."""

    def before_change(self, number: int, event: str, path: str) -> None:
        """Act before the n-th change of a folder, from 1; an OSError that is raised is what the change fails with."""


@dataclass(frozen=True)
class KillAt(Disturbance):
    """Kill -9 before the n-th change."""

    change: int

    def before_change(self, number: int, event: str, path: str) -> None:
        if number == self.change:
            os.kill(os.getpid(), signal.SIGKILL)


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


class Running:
    """A command of icalib that has been started in a folder.

    Args:
        arguments: what follows `icalib` on the command line.
        folder: working directory; paths among the arguments may be relative to it.
        disturbance: what happens to it.
        limit_s: kill it after this time, as hung.
    """

    def __init__(
        self, arguments: Sequence[str], folder: Path, disturbance: Disturbance | None = None, limit_s: float = LIMIT_S
    ) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["faults.preloaded"])
        self._output = tempfile.TemporaryDirectory()
        self._started = time.monotonic()
        self.process = context.Process(
            target=_command,
            args=(list(arguments), str(folder), self._output.name, disturbance or Disturbance(), limit_s),
            daemon=True,
        )
        self.process.start()

    @property
    def has_begun(self) -> bool:
        """Whether its process has become the command."""
        return (Path(self._output.name) / "writes").is_file()

    def written(self, name: str) -> str:
        """Return what it has written so far to `out` or `err`."""
        path = Path(self._output.name) / name
        return path.read_text(errors="replace") if path.is_file() else ""

    def signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.process.pid is not None and self.process.is_alive():
            os.kill(self.process.pid, number)

    def ended(self) -> Ended:
        """Wait for its end."""
        self.process.join()
        seconds = time.monotonic() - self._started
        with self._output:
            output = Path(self._output.name)
            code = self.process.exitcode if self.process.exitcode is not None else -signal.SIGKILL
            left = tuple(sorted(path.name for path in (output / "tmp").glob("*")))
            writes = output / "writes"
            num_writes = writes.stat().st_size if writes.is_file() else 0
            return Ended(code, self.written("out"), self.written("err"), seconds, left, num_writes)


def run_command(
    arguments: Sequence[str], folder: Path, disturbance: Disturbance | None = None, *, limit_s: float = LIMIT_S
) -> Ended:
    """Run a command of icalib to its end; see `Running`."""
    return Running(arguments, folder, disturbance, limit_s).ended()


def _command(arguments: list[str], folder: str, output: str, disturbance: Disturbance, limit_s: float) -> None:
    """Run in the forked process: become the command."""
    temporary = Path(output) / "tmp"
    temporary.mkdir()
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
    for name, stream in (("out", 1), ("err", 2)):
        os.dup2(os.open(Path(output) / name, os.O_WRONLY | os.O_CREAT), stream)
    os.chdir(folder)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which background shells ignore
    signal.setitimer(signal.ITIMER_REAL, limit_s)  # its default action ends the process
    disturbance.begin()
    sys.addaudithook(_Writes(output, disturbance))
    sys.argv = ["icalib", *arguments]
    from icalib.cli import main

    try:
        main()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


class _Writes:
    """An audit hook that counts changes of folders outside of the one for output, and lets each be disturbed."""

    def __init__(self, output: str, disturbance: Disturbance) -> None:
        self._output, self._disturbance, self._count = output, disturbance, 0
        self._file = os.open(Path(output) / "writes", os.O_WRONLY | os.O_CREAT)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not _is_change(event, arguments) or str(arguments[0]).startswith((self._output, "/dev", "/proc")):
            return
        self._count += 1
        os.write(self._file, b".")
        self._disturbance.before_change(self._count, event, os.fsdecode(arguments[0]))


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
