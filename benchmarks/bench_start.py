"""How long a user waits: for the first line and the first update of `icalib run`, and for the answer to one question.

    python benchmarks/bench_start.py               of a small run that is trained first
    python benchmarks/bench_start.py RUN|MODEL...  one question to rankers in memory; a MODEL is sentence-transformers'

Wall time is what a user sees; processor time is also shown, since other work on the machine hardly changes it.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from common import WORK, in_fresh_process, pool_folder, print_table

from icalib.core.files import read_json

ROUNDS = 5
NUM_CANDIDATES = 10
ICALIB = [sys.executable, "-m", "icalib"]
SMALL = ["--limit", "train=10,validation=4,test=4", "--labelled", "0.5", "--set", "regime.training.epochs=1"]
NO_DOMAIN_PRETRAINING = ["--set", "domain_pretraining=null"]
QUESTION = {
    "context": [
        {"speaker": "user", "text": "My printer hums and its light is red."},
        {"speaker": "agent", "text": "Which model is it?"},
        {"speaker": "user", "text": "The laser printer in the office, since this morning."},
    ],
    "candidates": [f"Please hold button {number} for ten seconds." for number in range(1, NUM_CANDIDATES + 1)],
}


def main() -> None:
    """Train a small run once, and use it in fresh processes."""
    if finished := sys.argv[1:]:
        _print_in_memory(finished)
        return
    pools = in_fresh_process(pool_folder)
    run = _finished_run(pools)
    question = WORK / "question.jsonl"
    question.write_text(json.dumps(QUESTION) + "\n")
    first = {"icalib run, first line": [_first_line(pools) for _ in range(ROUNDS)]}
    print_table("Waiting for a run", "s", first, [])
    update = {"icalib run, first update of the first training, Ray": [_first_update(pools) for _ in range(ROUNDS)]}
    print_table("Waiting for a training", "s", update, [])
    waits = [_command(["predict", str(run), str(question)]) for _ in range(ROUNDS)]
    cold = {
        "icalib predict, one question, wall time": [wall for wall, _ in waits],
        "the same, processor time": [cpu for _, cpu in waits],
    }
    print_table("Waiting for an answer", "s", cold, [])
    _print_in_memory([str(run)])
    print("  goals: first line 0.5 s, first update 8 s, cold 3 s, 20 ms in memory")


def _print_in_memory(runs: Sequence[str]) -> None:
    title = f"One question of {NUM_CANDIDATES} candidates in memory"
    shown: dict[str, list[float]] = {}
    for run in runs:
        wall, cpu = in_fresh_process(_rank, run)
        shown |= {f"{Path(run).name}, wall time": wall, f"{Path(run).name}, processor time": cpu}
    print_table(title, "ms", shown, [])


def _finished_run(pools: Path) -> Path:
    runs = WORK / "start"
    command = [*ICALIB, "run", "bert", "--data", str(pools), "--runs", str(runs), "--executor", "local"]
    subprocess.run([*command, *SMALL, *NO_DOMAIN_PRETRAINING], check=True, stderr=subprocess.DEVNULL)
    return next((runs / "default").glob("bert-*"))


def _first_line(pools: Path) -> float:
    started = time.perf_counter()
    command = [*ICALIB, "run", "bert", "--data", str(pools), "--labelled", "0.5"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        process.stderr.readline()
        waited = time.perf_counter() - started
        process.kill()
    return waited


def _first_update(pools: Path) -> float:
    """Seconds until the first training of a run has reported an update: imports, Ray's start, tokens."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        command = [*ICALIB, "run", "bert", "--data", str(pools), "--runs", folder, *SMALL, *NO_DOMAIN_PRETRAINING]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True) as process:
            while not any(Path(folder).glob(".cache/*/progress.json")):
                if process.poll() is not None:
                    raise RuntimeError(f"{' '.join(command)} ended before its first update")
                time.sleep(0.02)
            waited = time.perf_counter() - started
            process.terminate()  # it shuts Ray down
        return waited


def _command(arguments: list[str]) -> tuple[float, float]:
    """Wall time and processor time of a verb."""
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*ICALIB, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - started, used


def _rank(run: str) -> tuple[list[float], list[float]]:
    """Wall time and processor time of each call, after two calls that warm up."""
    answer = _of_run(run) if (Path(run) / "result.json").is_file() else _of_model(run)
    wall, cpu = [], []
    for _ in range(2 + 4 * ROUNDS):
        started, used = time.perf_counter(), time.process_time()
        answer()
        wall.append(1000 * (time.perf_counter() - started))
        cpu.append(1000 * (time.process_time() - used))
    return wall[2:], cpu[2:]


def _of_run(run: str) -> Callable[[], Any]:
    import icalib

    return partial(icalib.load(run).rank, QUESTION["context"], QUESTION["candidates"])


def _of_model(path: str) -> Callable[[], Any]:
    from sentence_transformers import CrossEncoder, SentenceTransformer

    texts = ["\n".join(turn["text"] for turn in QUESTION["context"]), *QUESTION["candidates"]]
    if read_json(Path(path) / "config_sentence_transformers.json")["model_type"] == "CrossEncoder":
        return partial(CrossEncoder(path).predict, [(texts[0], candidate) for candidate in texts[1:]])
    return partial(SentenceTransformer(path).encode, texts)


if __name__ == "__main__":
    main()
