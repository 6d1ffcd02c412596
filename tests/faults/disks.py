"""Commands on disks that refuse: typed errors, nothing half-written, and equal results once the disk is in order."""

from __future__ import annotations

import errno
import os
import random
import resource
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from faults.commands import Disturbance, Ended, run_command
from faults.damages import leftovers
from faults.kills import WRITING, Writing
from faults.tally import Outcome, Trial

_OUTPUT = 16_384
"""Bytes that a command's own messages may need."""
_OPENED = ("open", "os.mkdir", "os.rename", "os.link")


@dataclass(frozen=True)
class RefuseFrom(Disturbance):
    """A disk that refuses every new file, folder or rename from the n-th change on."""

    change: int
    number: int
    """Of the error: errno.ENOSPC, errno.EROFS …"""

    def before_change(self, number: int, event: str, path: str) -> None:
        if number >= self.change and event in _OPENED:
            raise OSError(self.number, os.strerror(self.number), path)


@dataclass(frozen=True)
class LargestFile(Disturbance):
    """A disk on which no file can become larger: writes fail in the middle of a file, in any language."""

    num_bytes: int

    def begin(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.num_bytes, resource.RLIM_INFINITY))


_REFUSALS = {"full disk": errno.ENOSPC, "failing disk": errno.EIO, "quota": errno.EDQUOT, "no permission": errno.EACCES}
SIMULATED = (*_REFUSALS, "largest file")
MOUNTED = ("small disk", "read-only disk")
"""Kinds that need a file system of the campaign's own."""


class Disk:
    """A file system in memory, mounted at a folder: it can be made too small, or read-only.

    It needs a process that may mount: `unshare --map-root-user --mount` starts one without any rights.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        _mount("-t", "tmpfs", "-o", "size=4g", "icalib-faults", str(folder))

    def unmount(self) -> None:
        """Give its memory back; files that are still open keep theirs until they are closed."""
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True, capture_output=True)

    @contextmanager
    def with_space(self, num_bytes: int) -> Generator[None]:
        """Leave so many bytes of free space."""
        facts = os.statvfs(self.folder)
        used = (facts.f_blocks - facts.f_bfree) * facts.f_frsize
        with self._remounted(f"size={used + num_bytes}"):
            yield

    @contextmanager
    def read_only(self) -> Generator[None]:
        """Refuse all writes."""
        with self._remounted("ro"):
            yield

    @contextmanager
    def _remounted(self, option: str) -> Generator[None]:
        _mount("-o", f"remount,{option}", str(self.folder))
        try:
            yield
        finally:
            _mount("-o", "remount,rw,size=4g", str(self.folder))


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True)


def disturb_once(writing: Writing, seed: int, number: int, limit_s: float, disk: Disk | None = None) -> Trial:
    """Run a verb on a disk that refuses, and again on one in order: kinds and verbs in turn, moments by chance.

    Args:
        writing: the verbs, in a world on `disk` if there is one.
        seed: with the number it determines the trial.
        number: of the trial.
        limit_s: time after which a verb counts as hung.
        disk: the disk of MOUNTED kinds; without one, these are left out.
    """
    kinds = SIMULATED if disk is None else (*SIMULATED, *MOUNTED)
    kind, name = kinds[number % len(kinds)], writing.names[number // len(kinds) % len(writing.names)]
    rng = random.Random(f"{seed}/{kind}/{name}/{number}")
    world, usual = writing.begin(name), writing.undisturbed[name]
    arguments = WRITING[name].arguments
    change = rng.randint(1, max(usual.num_writes, 1))
    num_bytes = int(max(usual.num_bytes, 4096) * rng.random() ** 2)
    if kind == "small disk" and disk is not None:
        with disk.with_space(num_bytes):
            ended = run_command(arguments, world, limit_s=limit_s)
    elif kind == "read-only disk" and disk is not None:
        with disk.read_only():
            ended = run_command(arguments, world, limit_s=limit_s)
    elif kind == "largest file":
        ended = run_command(arguments, world, LargestFile(max(num_bytes, _OUTPUT)), limit_s=limit_s)
    else:
        ended = run_command(arguments, world, RefuseFrom(change, _REFUSALS[kind]), limit_s=limit_s)
    first = _refused(ended, writing, name)
    outcomes, detail = writing.again(name, limit_s)
    found = tuple(dict.fromkeys((*first, *(outcome for outcome in outcomes if outcome != "identical"))))
    return Trial(
        f"{kind}: {name}",
        f"{seed}/{number}",
        found,
        f"change {change} of {usual.num_writes}, {num_bytes} bytes: {ended.err[-1500:]}\n{detail}",
    )


def _refused(ended: Ended, writing: Writing, name: str) -> tuple[Outcome, ...]:
    """Return what became of a verb on a disk that refuses: it is refused, too, or did not need what was refused."""
    world, verb = writing.world.now, WRITING[name]
    if ended.hung:
        return ("hung",)
    if ended.refused:
        left = [*ended.temporary, *leftovers(world)]
        return ("refused", "leftovers") if left else ("refused",)
    if ended.code:
        return ("untyped",)
    is_same = verb.result(ended, world) == writing.undisturbed[name].result
    return ("identical",) if is_same else ("different",)
