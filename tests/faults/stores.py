"""Commands on an object store that fails, breaks off, answers late or goes away: retried, or a typed error."""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults.commands import Disturbance, Ended, run_command
from faults.damages import leftovers, outcome_of
from faults.kills import WRITING, Writing
from faults.tally import Outcome, Trial
from faults.world import OUTCOME, UNTRAINED_OUTCOME, tables_result
from pyarrow import PythonFile
from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem

from icalib.core import storage
from icalib.core.storage import object_store


@dataclass(frozen=True)
class Unreliable(Disturbance):
    """A store whose operations fail or break off by chance, answer late, or all fail from the n-th on."""

    seed: int
    failing: float = 0.0
    breaking: float = 0.0
    late_s: float = 0.0
    gone_from: int = 0
    patience_s: float = 30.0

    def begin(self) -> None:
        os.environ[storage.PATIENCE] = str(self.patience_s)
        filesystem = PyFileSystem(_Handler(self))
        object_store.filesystem_of = lambda bucket: (filesystem, "")  # type: ignore[assignment]


class _Handler(FSSpecHandler):
    """A folder that stands for a store."""

    def __init__(self, faults: Unreliable) -> None:
        inner, _ = FileSystem.from_uri("fsspec+file:///")
        super().__init__(inner.handler.fs)
        self._faults, self._rng, self._lock, self._count = faults, random.Random(faults.seed), threading.Lock(), 0

    def _try(self) -> None:
        faults = self._faults
        with self._lock:
            self._count += 1
            is_gone = 0 < faults.gone_from <= self._count
            fails, late_s = self._rng.random() < faults.failing, self._rng.random() * faults.late_s
        time.sleep(late_s)
        if fails or is_gone:
            raise OSError("AWS Error NETWORK_CONNECTION during an operation: the store can't be reached")

    def _stream(self, opened: Any) -> Any:
        with self._lock:
            breaks = self._rng.random() < self._faults.breaking
        return PythonFile(_Breaking(opened, 100)) if breaks else opened

    def get_file_info(self, paths: list[str]) -> Any:
        self._try()
        return super().get_file_info(paths)

    def get_file_info_selector(self, selector: Any) -> Any:
        self._try()
        return super().get_file_info_selector(selector)

    def create_dir(self, path: str, recursive: bool) -> None:
        self._try()
        super().create_dir(path, recursive)

    def move(self, src: str, dest: str) -> None:
        self._try()
        super().move(src, dest)

    def delete_file(self, path: str) -> None:
        self._try()
        super().delete_file(path)

    def delete_dir(self, path: str) -> None:
        self._try()
        super().delete_dir(path)

    def open_input_stream(self, path: str) -> Any:
        self._try()
        return self._stream(super().open_input_stream(path))

    def open_input_file(self, path: str) -> Any:
        self._try()
        return super().open_input_file(path)

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        self._try()
        return self._stream(super().open_output_stream(path, metadata))


class _Breaking:
    """A stream that breaks off after some bytes."""

    def __init__(self, stream: Any, num_bytes: int) -> None:
        self._stream, self._left, self.closed = stream, num_bytes, False

    def _take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise OSError("AWS Error NETWORK_CONNECTION: the connection was closed")

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._stream.read(size)
        self._take(len(data))
        return data

    def write(self, data: Any) -> int:
        self._take(len(data))
        return int(self._stream.write(data))

    def close(self) -> None:
        self.closed = True
        self._stream.close()

    def flush(self) -> None:
        pass

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


KINDS: Mapping[str, Callable[[random.Random], Unreliable]] = {
    "flaky": lambda rng: Unreliable(rng.randrange(2**31), failing=0.15),
    "breaking off": lambda rng: Unreliable(rng.randrange(2**31), breaking=0.2),
    "slow": lambda rng: Unreliable(rng.randrange(2**31), late_s=0.3),
    "gone": lambda rng: Unreliable(rng.randrange(2**31), gone_from=rng.randint(1, 150), patience_s=0.5),
}
_STORE = "store"
_MIRROR = "mirror"


class InStore:
    """The verbs that read pools from a store and write runs to it, with their results on a local disk."""

    def __init__(self, writing: Writing) -> None:
        self.writing = writing
        tables = {"run bm25": UNTRAINED_OUTCOME, "run bert": OUTCOME}
        self.verbs = {
            name: (WRITING[name], tables_result(*(f"{_STORE}/{table}" for table in tables[name])))
            for name in tables.keys() & writing.undisturbed.keys()
        }

    def disturb_once(self, seed: int, number: int, limit_s: float) -> Trial:
        """Run a verb with an unreliable store, and again with a reliable one and an empty mirror."""
        kind = sorted(KINDS)[number % len(KINDS)]
        name = sorted(self.verbs)[number // len(KINDS) % len(self.verbs)]
        rng = random.Random(f"{seed}/{kind}/{name}/{number}")
        world = self.writing.begin(name)
        (world / _STORE).mkdir()
        shutil.move(world / "pools", world / _STORE / "pools")
        first = self._run(name, world, KINDS[kind](rng), limit_s)
        first_outcome = self._outcome(name, first, world)
        if rng.random() < 0.5:  # another machine runs the verb again
            shutil.rmtree(world / _MIRROR, ignore_errors=True)
        second = self._run(name, world, Unreliable(0), limit_s)
        outcome = self._outcome(name, second, world)
        if outcome == "refused":  # nothing was damaged
            outcome = "different"
        left = [*first.temporary, *second.temporary, *leftovers(world / _MIRROR)]
        outcomes: dict[Outcome, None] = {first_outcome: None}
        if outcome != "identical":
            outcomes[outcome] = None
        if left:
            outcomes["leftovers"] = None
        detail = f"{first.err[-1500:]}\n{second.err[-1500:]}\n{' '.join(left)}"
        return Trial(f"store {kind}: {name}", f"{seed}/{number}", tuple(outcomes), detail)

    def _run(self, name: str, world: Path, store: Unreliable, limit_s: float) -> Ended:
        uri = f"fsspec+file://{world / _STORE}"
        places = {"--data": f"{uri}/pools", "--runs": f"{uri}/runs"}
        words = [*self.verbs[name][0].arguments, "--runs", "runs"]
        for option, place in places.items():
            words[words.index(option) + 1] = place
        return run_command(words, world, _WithMirror(store, str(world / _MIRROR)), limit_s=limit_s)

    def _outcome(self, name: str, ended: Ended, world: Path) -> Outcome:
        expected = self.writing.undisturbed[name].result
        return outcome_of(ended, lambda: self.verbs[name][1](ended, world) == expected)


@dataclass(frozen=True)
class _WithMirror(Disturbance):
    """A store, and this machine's mirror of it."""

    store: Unreliable
    mirror: str

    def begin(self) -> None:
        os.environ[storage.CACHE] = self.mirror
        self.store.begin()
