"""Runs on a local Ray whose driver, worker, raylet or whole process group is killed -9, and which are run again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil
from faults.commands import Ended
from faults.damages import leftovers, outcome_of
from faults.kills import WRITING, Writing
from faults.tally import Outcome, Trial

VICTIMS = ("driver", "worker", "raylet", "group")
VERBS = ("run bert", "run bm25", "sweep")
_LIMIT_S = 240.0
_GONE_S = 60.0
"""Ray's own processes end when they notice that the driver has gone."""


class OnRay:
    """Verbs on a local Ray, whose results are those of the local executor."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    def kill_once(self, seed: int, number: int) -> Trial:
        """Kill one kind of process at a moment by chance, and run the verb again."""
        victim, name = VICTIMS[number % len(VICTIMS)], VERBS[number // len(VICTIMS) % len(VERBS)]
        rng = random.Random(f"{seed}/{victim}/{name}/{number}")
        world = self._writing.begin(name)
        outcomes: list[Outcome] = []
        with _Verb(name, world) as running:
            time.sleep(rng.uniform(4, 20))
            killed = running.kill(victim, rng)
            first = running.ended()
            if first.hung:
                outcomes.append("hung")
            elif victim in ("worker", "raylet") and first.code and not first.refused:
                outcomes.append("untyped")
            if not running.all_gone():
                outcomes.append("leftovers")
        with _Verb(name, world) as running:
            second = running.ended()
        usual = self._writing.undisturbed[name].result
        outcome = outcome_of(second, lambda: WRITING[name].result(second, world) == usual)
        outcomes.append("different" if outcome == "refused" else outcome)
        if left := leftovers(world):
            outcomes.append("leftovers")
        detail = f"killed {killed}: {first.code} {first.err[-1500:]}\n{second.code} {second.err[-1500:]}\n{left}"
        return Trial(f"Ray, kill {victim}: {name}", f"{seed}/{number}", tuple(dict.fromkeys(outcomes)), detail)


class _Verb:
    """A verb on a local Ray of its own, in a process group of its own."""

    def __init__(self, name: str, world: Path) -> None:
        words = list(WRITING[name].arguments)
        words[words.index("--executor") + 1] = "ray"
        self._folder = tempfile.TemporaryDirectory()
        self._paths = [Path(self._folder.name) / stream for stream in ("out", "err")]
        self._started, self._children = time.monotonic(), list[psutil.Process]()
        with self._paths[0].open("w") as out, self._paths[1].open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "icalib", *words],
                cwd=world,
                env={**os.environ, "RAY_ADDRESS": ""},
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def __enter__(self) -> _Verb:
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for child in self._children:
            with suppress(psutil.Error):
                child.kill()
        self._folder.cleanup()

    def kill(self, victim: str, rng: random.Random) -> str:
        """Kill a process, or all; return which."""
        with suppress(psutil.Error):
            self._children = psutil.Process(self.process.pid).children(recursive=True)
        names = {"worker": "ray::", "raylet": "raylet/raylet"}
        if victim in names:
            chosen = [child for child in self._children if names[victim] in _command_line(child)]
            for child in rng.sample(chosen, min(1, len(chosen))):
                with suppress(psutil.Error):
                    child.kill()
                return f"{victim} {child.pid}"
            return f"no {victim}: there was none"
        with suppress(ProcessLookupError):
            (os.kill if victim == "driver" else os.killpg)(self.process.pid, signal.SIGKILL)
        return victim

    def ended(self) -> Ended:
        try:
            code = self.process.wait(_LIMIT_S)
        except subprocess.TimeoutExpired:
            code = -signal.SIGALRM
        out, err = (path.read_text(errors="replace") for path in self._paths)
        return Ended(code, out, err, time.monotonic() - self._started, (), 0)

    def all_gone(self) -> bool:
        """Wait for the processes that Ray had started."""
        _, alive = psutil.wait_procs(self._children, timeout=_GONE_S)
        return not alive


def _command_line(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""
