"""A small world to do damage in: pools, a tiny backbone, runs, their cache, a sweep, and the verbs that use them."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from faults.commands import Ended, run_command
from helpers.pool_folders import read_pools
from helpers.scored_pools import score_rows, scored_pools, write_scores
from helpers.sweeps import SHARDS

TRAINED = "runs/default/bert-pools-0.3-s1"
SWEEP_FOLDER = "runs/default/sweep-shards-pools-0.3"
_UNTRAINED = "runs/default/bm25-pools-0.3-s1"
_SETTINGS = (
    "domain_pretraining=null",
    "similarity=null",
    "intent=null",
    "encoder.budget={max_context_tokens: 60, max_candidate_tokens: 20}",
    "regime.training.epochs=1",
    "scoring.pools_per_shard=6",
)
_SMALL = ("--executor", "local", "--labelled", "0.3", "--limit", "12", "--backbone", "bert")
_COMMON = ("--data", "pools", *_SMALL)
_IN_STORE = ("--data", "fsspec+file://{now}/pools", "--runs", "fsspec+file://{now}/runs", *_SMALL)
_CHANGED = tuple(word for text in _SETTINGS for word in ("--set", text))
_SCORE = ("score", TRAINED, "--executor", "local")


@dataclass(frozen=True)
class Verb:
    """A command that reads what may be damaged, or writes to what may refuse."""

    words: tuple[str, ...]  # of its command line
    result: Callable[[Ended, Path], str]  # what it has computed, as text, to compare
    writes: str = ""  # what has to be removed for it to have something to do; "" if it only reads
    cache: str = ""  # what has to be removed, too, for it to have everything to do
    area: str = "."  # where it may leave no temporary files; an object store may keep some


@dataclass(frozen=True)
class Usual:
    """What a verb that has everything to do computes when nothing disturbs it, and how much it writes."""

    result: str
    num_writes: int
    num_bytes: int


def _files(*patterns: str) -> Callable[[Ended, Path], str]:
    """Digest names and content of files: of Parquet the values, of others the bytes."""

    def result(ended: Ended, world: Path) -> str:
        digest = hashlib.sha256()
        for path in sorted(path for pattern in patterns for path in world.glob(pattern) if path.is_file()):
            content = repr(pq.read_table(path).to_pydict()).encode() if path.suffix == ".parquet" else path.read_bytes()
            digest.update(f"{path.relative_to(world)}\0".encode() + content)
        return digest.hexdigest()

    return result


def _outcome(run: str) -> Callable[[Ended, Path], str]:
    return _files(f"{run}/predictions/*.parquet", f"{run}/metrics.parquet")


def _json(ended: Ended, world: Path) -> str:
    value: Any = json.loads(ended.out.splitlines()[-1])
    for one in value if isinstance(value, list) else [value]:
        one.pop("seconds", None)
    return json.dumps(value)


def _printed(ended: Ended, world: Path) -> str:
    return ended.out


VERBS: Mapping[str, Verb] = {
    "run bert": Verb(("run", "bert", *_COMMON, *_CHANGED), _outcome(TRAINED), TRAINED, "runs"),
    "run bm25": Verb(("run", "bm25", *_COMMON), _outcome(_UNTRAINED), _UNTRAINED, "runs"),
    "calibrate": Verb(("calibrate", "labelled.jsonl", "--out", "calibrator"), _files("calibrator/*"), "calibrator"),
    "prepare": Verb(
        ("prepare", "dialogues.jsonl", "--out", "prepared", "--candidates", "4", "--executor", "local"),
        _files("prepared/*.parquet"), "prepared",
    ),
    "compare": Verb(("compare", "bm25", *_COMMON, "--seeds", "1", "--json"), _json),
    "evaluate": Verb(
        ("evaluate", TRAINED, "--data", "other", "--limit", "6", "--executor", "local", "--json"), _json
    ),
    "evaluate own": Verb(("evaluate", TRAINED, "--json"), _json),
    "score": Verb(
        (*_SCORE, "--data", "pools", "--limit", "6", "--out", "scores.parquet"), _files("scores.parquet"),
        "scores.parquet",
    ),
    "score pairs": Verb(
        (*_SCORE, "pairs.parquet", "--rows-per-file", "7", "--out", "scored"), _files("scored/part-*.parquet"), "scored"
    ),
    "predict": Verb(
        ("predict", TRAINED, "questions.jsonl", "--out", "answers.jsonl"), _files("answers.jsonl"), "answers.jsonl"
    ),
    "report": Verb(("report", TRAINED, _UNTRAINED), _printed, "report.html"),
    "sweep": Verb(("sweep", "shards.py", *_COMMON, "--json"), _json, SWEEP_FOLDER, "runs"),
    "report of a sweep": Verb(("report", SWEEP_FOLDER), _printed),
    "export": Verb(("export", TRAINED, "--out", "exported"), _files("exported/*.safetensors"), "exported"),
    "apply": Verb(
        ("calibrate", "labelled.jsonl", "--apply", "calibrator", "--out", "applied.jsonl"), _files("applied.jsonl"),
        "applied.jsonl",
    ),
    "bert in a store": Verb(("run", "bert", *_IN_STORE, *_CHANGED), _outcome(TRAINED), TRAINED, "runs", "mirror"),
    "bm25 in a store": Verb(("run", "bm25", *_IN_STORE), _outcome(_UNTRAINED), _UNTRAINED, "runs", "mirror"),
}  # fmt: skip
IN_STORE = ("bert in a store", "bm25 in a store")
ON_DISK = tuple(name for name in VERBS if name not in IN_STORE)
WRITING = tuple(name for name in ON_DISK if VERBS[name].writes)


class World:
    """A folder in which commands work, and its state before any damage."""

    def __init__(self, root: Path, pools: Path, backbone: Path, names: Iterable[str] = ON_DISK) -> None:
        """Copy pools, the dialogues beside them and a backbone to `root`, and run verbs once."""
        self.now, self.pristine = root / "now", root / "pristine"
        self._usual: dict[str, Usual] = {}
        shutil.copytree(pools, self.now / "pools")
        shutil.copytree(pools, self.now / "other")
        shutil.copytree(backbone, self.now / "bert")
        shutil.copy(pools.parent / "dialogues.jsonl", self.now)
        (self.now / "shards.py").write_text(SHARDS)
        _write_questions(self.now, pools)
        write_scores(self.now / "labelled.jsonl", score_rows(scored_pools(120)))
        for name in dict.fromkeys(("run bert", "run bm25", "calibrate", *names)):
            has_everything_to_do = not VERBS[name].cache or not (self.now / VERBS[name].cache).exists()
            usual = self._run(name)
            if has_everything_to_do:
                self._usual[name] = usual
        shutil.copytree(self.now, self.pristine)

    def renew(self) -> None:
        """Undo whatever happened."""
        shutil.rmtree(self.now, ignore_errors=True)
        shutil.copytree(self.pristine, self.now)

    def remove(self, name: str) -> None:
        """Remove a file or folder, if there is one."""
        path = self.now / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def begin(self, name: str) -> None:
        """Renew it such that a verb has everything to do."""
        self.renew()
        for path in filter(None, (VERBS[name].writes, VERBS[name].cache)):
            self.remove(path)

    def usual(self, name: str) -> Usual:
        """Return what a verb does when nothing disturbs it; the world needs renewal after the first call."""
        if name not in self._usual:
            self.begin(name)
            self._usual[name] = self._run(name)
        return self._usual[name]

    def is_usual(self, name: str, ended: Ended) -> bool:
        """Return whether a verb that has ended computed what it always does."""
        return VERBS[name].result(ended, self.now) == self._usual[name].result

    def left(self, name: str, ended: Ended) -> list[str]:
        """Return the temporary files that a verb has left behind."""
        area = self.now / VERBS[name].area
        return [*ended.temporary, *sorted(str(path.relative_to(area)) for path in area.rglob("*.tmp"))]

    def _run(self, name: str) -> Usual:
        """Run a verb that must succeed."""
        before = _num_bytes(self.now)
        ended = run_command(VERBS[name].words, self.now, limit_s=600)
        assert ended.code == 0, f"{name}\n{ended.err}"
        result = VERBS[name].result(ended, self.now)
        return Usual(result, ended.num_writes, max(_num_bytes(self.now) - before, 0))


def _num_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _write_questions(folder: Path, pools: Path) -> None:
    """Write some test pools as questions, and as pairs, one a row."""
    lines: list[str] = []
    pairs: list[dict[str, Any]] = []
    for pool in read_pools(pools, "test")[:5]:
        context = [{"speaker": one.speaker, "text": one.text} for one in pool.context]
        lines.append(json.dumps({"id": pool.pool_id, "context": context, "candidates": list(pool.candidates)}) + "\n")
        pairs += [{"context": [one.text for one in pool.context], "candidate": text} for text in pool.candidates]
    (folder / "questions.jsonl").write_text("".join(lines))
    pq.write_table(pa.Table.from_pylist(pairs), folder / "pairs.parquet", row_group_size=6)
