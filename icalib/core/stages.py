"""The stage cache: a stage whose inputs are the same is computed once."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from icalib.core.files import content_digest, read_json, write_json

_DONE = "stage.json"


@dataclass(frozen=True)
class Stage:
    """A finished stage: its folder, the digest of its inputs, and what it cost."""

    name: str
    digest: str
    path: Path
    reused: bool
    seconds: float

    def record(self) -> dict[str, Any]:
        """As it stands in stages.json."""
        return {
            "name": self.name,
            "digest": self.digest,
            "reused": self.reused,
            "seconds": round(self.seconds, 2),
            "path": str(self.path),
        }


class StageCache:
    """Folders named after a stage and the digest of its inputs; `stage.json`, written last, says that one is whole.

    An unfinished folder stays: it holds the checkpoints and shards from which the next try goes on.

    Args:
        fresh: compute every stage anew, once.
    """

    def __init__(
        self,
        root: Path,
        *,
        on_start: Callable[[str, bool], None] = lambda _name, _reused: None,
        on_finish: Callable[[Stage], None] = lambda _stage: None,
        fresh: bool = False,
    ) -> None:
        self.root = root.resolve()
        self.finished: list[Stage] = []
        self._on_start, self._on_finish, self._fresh = on_start, on_finish, fresh

    def run(self, name: str, inputs: dict[str, Any], build: Callable[[Path], None], *, kind: str = "") -> Stage:
        """The stage with these inputs: from the cache, or built by `build(folder)`.

        Args:
            name: how the run calls it, e.g. round-2/student.
            inputs: everything that the result depends on, JSON-able; paths don't belong here, digests do.
            kind: what the folder is called; the same stage may have different names in different runs.
        """
        digest = content_digest({"kind": kind or name, **inputs})
        folder = self.root / f"{(kind or name).replace('/', '-')}-{digest}"
        if self._fresh and digest not in {stage.digest for stage in self.finished}:
            shutil.rmtree(folder, ignore_errors=True)
        reused = (folder / _DONE).is_file()
        self._on_start(name, reused)
        if reused:
            seconds = float(read_json(folder / _DONE)["seconds"])
        else:
            folder.mkdir(parents=True, exist_ok=True)
            started = time.monotonic()
            build(folder)
            seconds = time.monotonic() - started
            write_json(folder / _DONE, {"name": name, "inputs": inputs, "seconds": seconds})
        stage = Stage(name, digest, folder, reused, seconds)
        self.finished.append(stage)
        self._on_finish(stage)
        return stage
