"""Commands of icalib in processes of their own, which start in a moment, can be disturbed, and leave their output.

A server process imports icalib once and is forked for each command: importing takes longer than most commands do.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pkgutil
import random
import resource
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.stores import FailingStore
from pyarrow.fs import PyFileSystem

import icalib
from icalib.core import storage

LIMIT_S = 60.0
"""A command that takes longer counts as hung."""
_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "shutil.rmtree")
_REFUSED = ("open", "os.mkdir", "os.rename", "os.link")


@dataclass(frozen=True)
class Disturbance:
    """What disturbs a command; 0 is never, and changes of folders are counted from 1."""

    kill_at: int = 0  # kill -9 before this change
    refuse_from: int = 0  # the disk refuses every new file, folder or rename from this change on
    error: int = 0  # with this number: errno.ENOSPC, errno.EROFS …
    largest_file: int = 0  # bytes beyond which writes fail in the middle of a file, in any language
    store_failing: float = 0.0  # fraction of the operations of an object store (`fsspec+file://`) that fail
    store_gone_from: int = 0  # all of them fail from this one on
    store_seed: int = 0  # which of them fail
    patience_s: float = 30.0  # how long they are tried again

    def begin(self, folder: str) -> None:
        """Act in the command's process, before it begins."""
        os.environ[storage.CACHE] = f"{folder}/mirror"
        os.environ[storage.PATIENCE] = str(self.patience_s)
        rng, numbers = random.Random(self.store_seed), itertools.count(1)

        def fails(kind: str, path: str) -> bool:
            return rng.random() < self.store_failing or 0 < self.store_gone_from <= next(numbers)

        filesystem = PyFileSystem(FailingStore(fails))
        storage.filesystem_of = lambda bucket: (filesystem, "")  # type: ignore[assignment]
        if self.largest_file:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.largest_file, resource.RLIM_INFINITY))

    def before_change(self, number: int, event: str, path: str) -> None:
        """Act before the n-th change of a folder."""
        if number == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if 0 < self.refuse_from <= number and event in _REFUSED:
            raise OSError(self.error, os.strerror(self.error), path)


@dataclass(frozen=True)
class Ended:
    """A command that has ended: its exit code (negative: a signal that killed it), output, and what it left.

    `num_writes` is how often it changed a folder: opened a file for writing, renamed, removed or made one.
    """

    code: int
    out: str
    err: str
    temporary: tuple[str, ...]
    num_writes: int

    @property
    def is_refused(self) -> bool:
        """Whether it ended with an error of icalib's own, or of the command line's."""
        return self.code == 2 and "Traceback" not in self.err and "rror: " in self.err


class Running:
    """A command of icalib that has been started in a folder, for which `{now}` stands among its arguments."""

    def __init__(
        self, arguments: Sequence[str], folder: Path, disturbance: Disturbance = Disturbance(), limit_s: float = LIMIT_S
    ) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_preloaded())
        self._output = tempfile.TemporaryDirectory()
        words = [word.replace("{now}", str(folder)) for word in arguments]
        self.process = context.Process(
            target=_become, args=(words, str(folder), self._output.name, disturbance, limit_s), daemon=True
        )
        self.process.start()

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
        with self._output:
            code = self.process.exitcode if self.process.exitcode is not None else -signal.SIGKILL
            left = tuple(sorted(path.name for path in Path(self._output.name, "tmp").glob("*")))
            return Ended(code, self.written("out"), self.written("err"), left, len(self.written("writes")))


def run_command(
    arguments: Sequence[str], folder: Path, disturbance: Disturbance = Disturbance(), limit_s: float = LIMIT_S
) -> Ended:
    """Run a command of icalib to its end; see `Running`."""
    return Running(arguments, folder, disturbance, limit_s).ended()


def _preloaded() -> list[str]:
    """Return the modules that commands would import."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    left_out = ("icalib.distributed", "icalib.__main__", "icalib.demo")
    names = [module.name for module in pkgutil.walk_packages(icalib.__path__, "icalib.")]
    others = ["transformers.models.bert.modeling_bert", "safetensors.torch", "torch.utils.tensorboard", "plotly.io"]
    return [*(name for name in names if not name.startswith(left_out)), *others]


def _become(arguments: list[str], folder: str, output: str, disturbance: Disturbance, limit_s: float) -> None:
    """Become the command, in the forked process."""
    temporary = Path(output) / "tmp"
    temporary.mkdir()
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
    for name, stream in (("out", 1), ("err", 2)):
        os.dup2(os.open(Path(output) / name, os.O_WRONLY | os.O_CREAT), stream)
    os.chdir(folder)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which background shells ignore
    signal.setitimer(signal.ITIMER_REAL, limit_s)  # its default action ends the process
    disturbance.begin(folder)
    _watch_changes(output, disturbance)
    sys.argv = ["icalib", *arguments]
    from icalib.cli import main

    try:
        main()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _watch_changes(output: str, disturbance: Disturbance) -> None:
    """Count changes of folders outside of the one for output, and let each be disturbed."""
    numbers, file = itertools.count(1), os.open(Path(output) / "writes", os.O_WRONLY | os.O_CREAT)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            flags = arguments[2] or 0
            is_change = isinstance(arguments[0], str | bytes) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        else:
            is_change = event in _CHANGES
        if is_change and not str(arguments[0]).startswith((output, "/dev", "/proc")):
            os.write(file, b".")
            disturbance.before_change(next(numbers), event, os.fsdecode(arguments[0]))

    sys.addaudithook(hook)
