"""Verbs on a local Ray, one of whose processes is killed -9, and which are then run again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil
from faults.commands import Ended
from faults.trials import Outcome, Trial, ended_trial
from faults.world import VERBS, World

VICTIMS = {"driver": "", "group": "", "worker": "ray::", "raylet": "raylet/raylet", "control store": "gcs/gcs_server"}
"""What is killed, and a part of its command line; the driver is known, and a group is all that it has started."""
ON_RAY = ("run bert", "sweep", "score pairs")
_LIMIT_S = 240.0
_GONE_S = 120.0
"""Ray's own processes end when they notice that the driver has gone, its agents within a minute and a half."""


def kill_on_ray_once(world: World, seed: int, number: int) -> Trial:
    """Kill a process at a moment by chance, and run the verb again: the result of the local executor."""
    victim, name = [*VICTIMS][number % len(VICTIMS)], ON_RAY[number // len(VICTIMS) % len(ON_RAY)]
    rng = random.Random(f"{seed}/{victim}/{name}/{number}")
    world.usual(name)
    world.begin(name)
    outcomes: list[Outcome] = []
    with _OnRay(name, world.now) as running:
        time.sleep(rng.uniform(3, 25))
        killed = running.kill(victim, rng)
        first = running.ended()
        if first.code == -signal.SIGALRM:
            outcomes.append("hung")
        elif first.code > 0 and not first.is_refused:
            outcomes.append("untyped")
        if not running.are_gone():
            outcomes.append("leftovers")
    second = _again(name, world)
    if second.is_refused:  # as where Ray doesn't start on a busy machine
        outcomes.append("refused")
        second = _again(name, world)
    if second.code == -signal.SIGALRM:
        outcomes.append("hung")
    else:
        outcomes.append("identical" if world.is_usual(name, second) else "different")
    detail = f"killed {killed}: {first.code} {first.err[-1500:]}\nagain: {second.code} {second.err[-1500:]}"
    return ended_trial(f"Ray, kill {victim}: {name}", f"{seed}/{number}", outcomes, world.left(name, second), detail)


def _again(name: str, world: World) -> Ended:
    with _OnRay(name, world.now) as running:
        return running.ended()


class _OnRay:
    """A verb on a Ray of its own, in a process group of its own."""

    def __init__(self, name: str, world: Path) -> None:
        words = list(VERBS[name].words)
        words[words.index("--executor") + 1] = "ray"
        self._output = tempfile.TemporaryDirectory()
        self._streams = [Path(self._output.name) / stream for stream in ("out", "err")]
        self._children: Sequence[psutil.Process] = ()
        with self._streams[0].open("w") as out, self._streams[1].open("w") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "icalib", *words],
                cwd=world,
                env={**os.environ, "RAY_ADDRESS": ""},
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def __enter__(self) -> _OnRay:
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for child in self._children:
            with suppress(psutil.Error):
                child.kill()
        self._output.cleanup()

    def kill(self, victim: str, rng: random.Random) -> str:
        """Kill a process, or all of them; return which."""
        with suppress(psutil.Error):
            self._children = psutil.Process(self._process.pid).children(recursive=True)
        if VICTIMS[victim]:
            chosen = [child for child in self._children if VICTIMS[victim] in _command_line(child)]
            for child in rng.sample(chosen, min(1, len(chosen))):
                name = _command_line(child)
                with suppress(psutil.Error):
                    child.kill()
                return name
            return f"no {victim}: there was none"
        with suppress(ProcessLookupError):
            (os.kill if victim == "driver" else os.killpg)(self._process.pid, signal.SIGKILL)
        return victim

    def ended(self) -> Ended:
        """Wait for its end."""
        try:
            code = self._process.wait(_LIMIT_S)
        except subprocess.TimeoutExpired:
            code = -signal.SIGALRM
        out, err = (path.read_text(errors="replace") for path in self._streams)
        return Ended(code, out, err, (), 0)

    def are_gone(self) -> bool:
        """Wait for the processes that Ray had started, but for zombies, which wait for their new parent alone."""
        until = time.monotonic() + _GONE_S
        while any(map(_is_alive, self._children)) and time.monotonic() < until:
            time.sleep(0.2)
        return not any(map(_is_alive, self._children))


def _is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _command_line(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""
