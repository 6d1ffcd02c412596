"""Digests of what small runs of every method leave: proof that a refactoring changed no number.

    python tests/digests.py before.json                # before the change
    python tests/digests.py after.json                 # after it
    python tests/digests.py --compare before.json after.json

Everything goes through the command line on a random tiny BERT and simulated pools, so the script outlives any change
of modules. Pools and backbone are made once, in `digests-inputs` beside the result, and reused: a tokenizer that is
trained twice may break ties differently. It covers a run of each method, a sweep over thresholds and its dry run, a
reproduced table, and evaluate, score and predict with finished runs. Two checkouts are comparable on the same machine
only.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

TRAINING = {
    "epochs": 2,
    "learning_rate": 1e-3,
    "head_learning_rate": 1e-2,
    "train_negatives": 3,
    "precision": "fp32",
    "checkpoint_every": 5,
}
SETTINGS: dict[str, Any] = {
    "encoder.budget.max_context_tokens": 60,
    "encoder.budget.max_candidate_tokens": 20,
    "domain_pretraining.max_windows": 60,
    "regime.training": TRAINING,
    "regime.teacher": TRAINING,
    "regime.student": {**TRAINING, "epochs": 1},
    "regime.rule.gain_threshold": 0.0,
    "regime.rule.positive_threshold": 0.3,
    "regime.rule.negative_threshold": 0.26,
    "regime.rule.calibrated_positive_threshold": 0.28,
    "regime.rule.calibrated_negative_threshold": 0.28,
    "regime.rule.confidence_threshold": 0.0,
    "regime.num_rounds": 2,
    "scoring.precision": "fp32",
    "scoring.pools_per_shard": 8,
    "head.num_features": 64,
    "head.support.size": 64,
    "head.num_chains": 8,
}
SPACE = '''"""Two rules that agree and one that differs."""

METHOD = "icast"
METRICS = {"F1": "maximize"}
POINTS = [0.3, 0.3000001, 0.31]


def suggest(trial):
    return {"regime.rule.positive_threshold": trial.suggest_categorical("threshold", POINTS)}


def grid():
    return [{"threshold": point} for point in POINTS]
'''
METHODS = (
    "bert", "mc-dropout", "focal", "sngp", "gpf-bert", "pg-drr", "ensemble", "tsst", "icast-teacher", "icast",
    "icast-gpf", "icast-pg", "jm", "sam", "bert-fp", "grn", "gray", "big", "iart",
)  # fmt: skip
COMMON = ["--data", "pools", "--labelled", "0.3", "--limit", "train=100,validation=12,test=12", "--backbone", "bert"]
VOLATILE = {"seconds", "threads", "predicts_scores"}
"""Fields that no two runs, or no two versions, have in common."""
MEASURED = {"validation", "test"}
"""Fields of result.json whose metrics are those of metrics.parquet."""


def main() -> None:
    """Run everything in a fresh folder, or compare two results."""
    if sys.argv[1:2] == ["--compare"]:
        compare(*(json.loads(Path(path).read_text()) for path in sys.argv[2:4]))
        return
    out = Path(sys.argv[1]).resolve()
    inputs = out.parent / "digests-inputs"
    if not inputs.exists():
        inputs.mkdir()
        os.chdir(inputs)
        make_inputs()
    with tempfile.TemporaryDirectory(prefix="digests-") as folder:
        shutil.copytree(inputs, folder, dirs_exist_ok=True)
        os.chdir(folder)
        compute()
        out.write_text(json.dumps(dict(digests()), indent=1, sort_keys=True) + "\n")


def compare(before: dict[str, str], after: dict[str, str]) -> None:
    """Say which digests differ; exit with 1 if any does. Metrics of one side only are named, and don't count."""
    before, after = ({name.replace("made_up", "generated"): d for name, d in side.items()} for side in (before, after))
    metrics, others = ({name.partition(" ")[2] for name in side} for side in (before, after))
    if metrics != others:
        print(f"metrics of one side only: {', '.join(sorted(metrics ^ others))}")
    both = [name for name in sorted(before.keys() | after.keys()) if name.partition(" ")[2] in metrics & others]
    different = [name for name in both if before.get(name) != after.get(name)]
    for name in different:
        print(f"{name}: {before.get(name)} -> {after.get(name)}")
    print(f"{len(before)} digests before, {len(after)} after, {len(different)} different")
    sys.exit(bool(different))


def icalib(*arguments: str, out: str | None = None) -> None:
    """Run a command line in the current folder."""
    begun = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "icalib", *arguments], capture_output=True, text=True, check=False)
    print(f"{time.monotonic() - begun:6.1f} s  {' '.join(arguments)[:100]}", file=sys.stderr)
    if done.returncode:
        sys.exit(f"icalib {' '.join(arguments)}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    if out is not None:
        Path(out).write_text(done.stdout)


def make_inputs() -> None:
    """Pools, other pools, a tiny backbone, questions and a space."""
    from helpers.tiny_models import pool_texts, write_tiny_bert

    for name, seed in (("pools", 1), ("other", 9)):
        icalib("simulate", f"{name}.jsonl", "--dialogues", "60", "--seed", str(seed))
        icalib("prepare", f"{name}.jsonl", "--out", name, "--candidates", "4", "--labelled", "0.3")
    write_tiny_bert(Path("bert"), pool_texts(Path("pools")))
    question = {"context": [{"speaker": "user", "text": "It hums."}], "candidates": ["Restart it.", "Hello!"]}
    turns = [{"speaker": s, "text": f"My printer {s}s."} for s in ("user", "agent", "user", "agent")]
    other = {"context": turns, "candidates": ["No.", "It beeps.", "Try again.", "Which one?"]}
    Path("questions.jsonl").write_text(json.dumps(question) + "\n" + json.dumps(other) + "\n")
    Path("threshold_space.py").write_text(SPACE)


def compute() -> None:
    """All runs; methods share stages as users' runs do."""
    settings = [f"--set={name}={json.dumps(value)}" for name, value in SETTINGS.items()]
    icalib("compare", *METHODS, *COMMON, *settings, "--seeds", "1", "--experiment", "all")
    own = [s for s in settings if not s.startswith(("--set=head", "--set=regime.training="))]
    icalib("compare", "icast", *COMMON, *own, "--seeds", "2", "--experiment", "all")
    icalib("sweep", "./threshold_space.py", *COMMON, *own, "--experiment", "sweep", "--dry")
    icalib("sweep", "./threshold_space.py", *COMMON, *own, "--experiment", "sweep")
    rounds = ("rule", "teacher", "student", "num_rounds")
    others = (
        *(f"--set=regime.{name}" for name in rounds),
        "--set=head.support",
        "--set=head.num_chains",
        "--set=domain_pretraining",  # which the table's preset leaves out
    )
    supervised = [s for s in settings if not s.startswith(others)]
    icalib(
        "reproduce", "gpf-table2", *COMMON, "--shift", "other", "--rows", "bert,gpf-bert", "--seeds", "1", *supervised
    )
    for method in ("icast", "gpf-bert", "ensemble", "bm25"):
        run = f"runs/all/{method}-pools-0.3-s1"
        icalib("evaluate", run, "--data", "other", "--limit", "10")
        icalib("score", run, "--data", "other", "--split", "validation", "--out", f"scores-{method}.parquet")
        if method != "bm25":
            icalib("predict", run, "questions.jsonl", "--sets", "0.8", out=f"answers-{method}.jsonl")


def digests() -> Iterator[tuple[str, str]]:
    """What the commands left, each file's content."""
    for path in sorted(Path(".").rglob("*.parquet")):
        if any(part.startswith(".") for part in path.parts) or path.name == "trials.parquet":
            continue
        if path.name == "metrics.parquet":
            yield from metric_digests(path)
        else:
            yield str(path), table_digest(path)
    for path in sorted([*Path("runs").rglob("result.json"), *Path("runs").rglob("fitted.json")]):
        if ".cache" not in path.parts:
            facts = json.loads(path.read_text())
            kept = {
                name: value
                for name, value in facts.items()
                if name not in {*VOLATILE, *MEASURED, "run", "data", "trained_on"}
            }
            yield str(path), digest(kept)
    for path in sorted(Path(".").glob("answers-*.jsonl")):
        yield str(path), digest(path.read_text())


def metric_digests(path: Path) -> Iterator[tuple[str, str]]:
    """Digest of each metric's rows in metrics.parquet, named by the path and the metric."""
    rows = pq.read_table(path).to_pylist()
    for name in dict.fromkeys(row["metric"] for row in rows):
        yield f"{path} {name}", digest([row for row in rows if row["metric"] == name])


def table_digest(path: Path) -> str:
    """Digest of a table's values, whatever its encoding."""
    table = pq.read_table(path)
    columns = {name: table[name].to_pylist() for name in sorted(table.column_names) if name not in VOLATILE}
    return digest(columns)


def digest(value: Any) -> str:
    """Digest of JSON-able values; NaN is a value."""
    text = json.dumps(
        value, sort_keys=True, default=lambda v: "nan" if isinstance(v, float) and math.isnan(v) else str(v)
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


if __name__ == "__main__":
    main()
