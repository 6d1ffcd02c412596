"""A small world to do damage in: pools, a tiny backbone, runs, their cache, a sweep, and the verbs that read them."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from faults.commands import Ended, run_command
from helpers.scored_pools import score_rows, scored_pools, write_scores
from helpers.sweeps import SHARDS

from icalib.data.pools import as_pools, iter_pools

SETTINGS = (
    "post_training=null",
    "similarity_start=none",
    "encoder.budget={max_context_tokens: 60, max_candidate_tokens: 20}",
    "regime.training.epochs=1",
    "scoring.pools_per_shard=6",
)
COMMON = ("--data", "pools", "--executor", "local", "--labelled", "0.3", "--limit", "12", "--backbone", "bert")
TRAINED = "runs/default/bert-pools-0.3-s1"
UNTRAINED = "runs/default/bm25-pools-0.3-s1"
RUN = ("run", "bert", *COMMON, *(part for text in SETTINGS for part in ("--set", text)))


@dataclass(frozen=True)
class Verb:
    """A command that reads what may be damaged.

    Attributes:
        arguments: of the command line.
        result: what it has computed, as text, to compare: from its output and the world's folder.
        first: changes the world before the command, e.g. removes the run that would be found finished.
    """

    arguments: tuple[str, ...]
    result: Callable[[Ended, Path], str]
    first: Callable[[Path], object] = lambda world: None


def tables_result(*names: str) -> Callable[[Ended, Path], str]:
    def result(ended: Ended, world: Path) -> str:
        digest = hashlib.sha256()
        for name in names:
            digest.update(repr(pq.read_table(world / name).to_pydict()).encode())
        return digest.hexdigest()

    return result


def files_result(folder: str, pattern: str = "*") -> Callable[[Ended, Path], str]:
    """Names and bytes of a folder's files."""

    def result(ended: Ended, world: Path) -> str:
        digest = hashlib.sha256()
        for path in sorted(path for path in (world / folder).rglob(pattern) if path.is_file()):
            digest.update(f"{path.relative_to(world)}\0".encode() + path.read_bytes())
        return digest.hexdigest()

    return result


def json_result(ended: Ended, world: Path) -> str:
    value: Any = json.loads(ended.out.splitlines()[-1])
    for one in value if isinstance(value, list) else [value]:
        one.pop("seconds", None)
    return json.dumps(value)


def text_result(name: str) -> Callable[[Ended, Path], str]:
    return lambda ended, world: (world / name).read_text()


def without(name: str) -> Callable[[Path], object]:
    def remove(world: Path) -> None:
        path = world / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    return remove


def _printed(ended: Ended, world: Path) -> str:
    return f"{ended.out}{ended.err}"


_TABLES = ("predictions/test.parquet", "predictions/validation.parquet", "metrics.parquet")
OUTCOME = tuple(f"{TRAINED}/{name}" for name in _TABLES)
UNTRAINED_OUTCOME = tuple(f"{UNTRAINED}/{name}" for name in _TABLES)
SWEEP_FOLDER = "runs/default/sweep-shards-pools-0.3"
SWEEP = ("sweep", "shards.py", *COMMON, "--json")
PREDICT = ("predict", TRAINED, "questions.jsonl", "--out", "answers.jsonl")
SCORE = ("score", TRAINED, "--data", "pools", "--limit", "6", "--out", "scores.parquet", "--executor", "local")
SCORE_PAIRS = (
    "score", TRAINED, "pairs.parquet", "--rows-per-file", "7", "--out", "scored", "--executor", "local"
)  # fmt: skip
CALIBRATE = ("calibrate", "labelled.jsonl", "--out", "calibrator")
APPLY = ("calibrate", "labelled.jsonl", "--apply", "calibrator", "--out", "applied.jsonl")
EXPORT = ("export", TRAINED, "--out", "exported")
REPORT = ("report", TRAINED, UNTRAINED)
VERBS: Mapping[str, Verb] = {
    "run again": Verb(RUN, tables_result(*OUTCOME)),
    "run from the cache": Verb(RUN, tables_result(*OUTCOME), without(TRAINED)),
    "bm25 from the cache": Verb(("run", "bm25", *COMMON, "--json"), json_result, without(UNTRAINED)),
    "compare": Verb(("compare", "bm25", *COMMON, "--seeds", "1", "--json"), json_result),
    "evaluate": Verb(
        ("evaluate", TRAINED, "--data", "other", "--limit", "6", "--executor", "local", "--json"), json_result
    ),
    "evaluate own": Verb(("evaluate", TRAINED, "--json"), json_result),
    "score": Verb(SCORE, tables_result("scores.parquet")),
    "predict": Verb(PREDICT, text_result("answers.jsonl")),
    "report": Verb(REPORT, _printed),
    "sweep": Verb(SWEEP, json_result),
    "report of a sweep": Verb(("report", SWEEP_FOLDER), _printed),
    "export": Verb(EXPORT, files_result("exported"), without("exported")),
    "score pairs": Verb(SCORE_PAIRS, files_result("scored", "part-*.parquet")),
    "apply": Verb(APPLY, text_result("applied.jsonl")),
}  # fmt: skip


class World:
    """A folder in which commands work, its state before any damage, and each verb's result in that state."""

    def __init__(self, root: Path, pools: Path, backbone: Path, verbs: Mapping[str, Verb] = VERBS) -> None:
        """Copy pools, the dialogues beside them and a backbone to `root`, and run the verbs once."""
        self.now, self.pristine, self.verbs = root / "now", root / "pristine", verbs
        shutil.copytree(pools, self.now / "pools")
        shutil.copytree(pools, self.now / "other")
        shutil.copytree(backbone, self.now / "bert")
        shutil.copy(pools.parent / "dialogues.jsonl", self.now)
        (self.now / "shards.py").write_text(SHARDS)
        (self.now / "questions.jsonl").write_text(questions(pools))
        write_pairs_to_score(self.now / "pairs.parquet", pools)
        write_scores(self.now / "labelled.jsonl", score_rows(scored_pools(120)))
        for arguments in (RUN, ("run", "bm25", *COMMON), CALIBRATE):
            self.command(arguments)
        self.results = {name: verb.result(self.command(verb.arguments), self.now) for name, verb in verbs.items()}
        shutil.copytree(self.now, self.pristine)

    def command(self, arguments: tuple[str, ...]) -> Ended:
        """Run a command that must succeed."""
        ended = run_command(arguments, self.now, limit_s=600)
        assert ended.code == 0, f"{arguments}\n{ended.err}"
        return ended


def questions(pools: Path) -> str:
    """Return a file of questions: contexts and candidates of some test pools."""
    found = [pool for batch in iter_pools(pools, "test") for pool in as_pools(batch)][:4]
    rows = [
        {
            "id": pool.pool_id,
            "context": [{"speaker": one.speaker, "text": one.text} for one in pool.context],
            "candidates": list(pool.candidates),
        }
        for pool in found
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


def write_pairs_to_score(path: Path, pools: Path) -> None:
    """Write the pairs of some test pools, one a row."""
    found = [pool for batch in iter_pools(pools, "test") for pool in as_pools(batch)][:5]
    contexts = [[one.text for one in pool.context] for pool in found for _ in pool.candidates]
    candidates = [text for pool in found for text in pool.candidates]
    pq.write_table(pa.table({"context": contexts, "candidate": candidates}), path, row_group_size=6)
