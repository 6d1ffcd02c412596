"""`icalib score` on Parquet files of 10⁴ to 10⁶ pairs by a tiny model: time a pair, memory, and resuming after a kill.

    python benchmarks/pairs.py        # a quarter of an hour
    python benchmarks/pairs.py 4 5    # 10⁴ and 10⁵ pairs only

What a tiny model leaves is what scoring costs besides the model.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from common import ROOT, WORK, num_cores

EXPONENTS = (4, 5, 6)
_CANDIDATES = 10
_BATCH = 100_000


class Measured(NamedTuple):
    """What a process took."""

    seconds: float
    peak: float
    """Peak resident memory in MiB."""


def main() -> None:
    """Measure; the largest file is scored a second time, by a process that is killed half-way and one that resumes."""
    exponents = tuple(map(int, sys.argv[1:])) or EXPONENTS
    folder = WORK / "pairs"
    shutil.rmtree(folder, ignore_errors=True)
    run = _tiny_run(folder)
    start = score(run, pair_file(folder, 1), folder / "start")
    print(f"\nScoring pairs with a tiny model (2 layers, 32 wide), 1 process, {num_cores()} cores")
    print(f"  a process that scores {_CANDIDATES} pairs takes {start.seconds:.1f} s, {start.peak:.0f} MiB")
    print(f"{'pairs':>10}{'seconds':>10}{'µs a pair':>11}{'pairs/s':>10}{'MiB':>7}")
    for exponent in exponents:
        number = 10**exponent
        found = score(run, pair_file(folder, exponent), folder / f"out-{exponent}")
        each = (found.seconds - start.seconds) / number
        row = f"{number:>10}{found.seconds:>10.1f}{1e6 * each:>11.0f}{1 / each:>10.0f}{found.peak:>7.0f}"
        print(row, flush=True)
    last = exponents[-1]
    killed_after = _killed_half_way(run, pair_file(folder, last), folder / "killed")
    resumed = score(run, pair_file(folder, last), folder / "killed")
    same = digests(folder / "killed") == digests(folder / f"out-{last}")
    print(
        f"  killed after {killed_after} of {len(_files(folder / 'killed'))} files, resumed in {resumed.seconds:.1f} s: "
        f"{'the same files' if same else 'OTHER FILES'}"
    )
    shutil.rmtree(folder)
    if not same:
        sys.exit(1)


def _tiny_run(folder: Path) -> Path:
    """Train a random two-layer BERT for one epoch on a few pools."""
    sys.path.append(str(ROOT / "tests"))
    from helpers.tiny_models import pool_texts, write_tiny_bert, write_tiny_pools

    from icalib.api.runs import run

    folder.mkdir(parents=True)
    pools = write_tiny_pools(folder)
    backbone = write_tiny_bert(folder / "bert", pool_texts(pools))
    settings = {
        "encoder.budget": {"max_context_tokens": 60, "max_candidate_tokens": 20},
        "regime.training.epochs": 1,
        "domain_pretraining": None,
        "similarity": None,
    }
    return run("bert", pools, backbone=str(backbone), settings=settings, executor="local", runs=folder / "runs").path


def pair_file(folder: Path, exponent: int) -> Path:
    """Return a file of 10^exponent pairs, `_CANDIDATES` for each context; written once."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / f"pairs-{exponent}.parquet"
    if path.is_file():
        return path
    rng = np.random.default_rng(exponent)
    words = np.array(["my", "printer", "hums", "since", "the", "update", "and", "prints", "no", "page", "any", "more"])

    def texts(number: int, length: int) -> list[str]:
        return [" ".join(row) for row in words[rng.integers(len(words), size=(number, length))]]

    schema = pa.schema([("context", pa.list_(pa.string())), ("candidate", pa.string())])
    with pq.ParquetWriter(path, schema) as writer:
        for done in range(0, 10**exponent, _BATCH):
            number = min(_BATCH, 10**exponent - done)
            contexts = [
                [first, second] for first, second in zip(texts(number // 10, 12), texts(number // 10, 8), strict=True)
            ]
            columns = {
                "context": [context for context in contexts for _ in range(_CANDIDATES)],
                "candidate": texts(number, 10),
            }
            writer.write_table(pa.table(columns, schema=schema), row_group_size=10_000)
    return path


def _process(run: Path, pairs: Path, out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "icalib", "score", str(run), str(pairs), "--out", str(out), "--executor", "local"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)


def score(run: Path, pairs: Path, out: Path) -> Measured:
    """Score a file in a process of its own."""
    started = time.perf_counter()
    process = _process(run, pairs, out)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"icalib score ended with {process.returncode}")
    return Measured(time.perf_counter() - started, usage.ru_maxrss / 1024)


def _killed_half_way(run: Path, pairs: Path, out: Path) -> int:
    """Kill a process when half of the files are there; returns their number."""
    import pyarrow.parquet as pq

    wanted = max(1, pq.read_metadata(pairs).num_rows // 20_000 // 2)
    process = _process(run, pairs, out)
    while process.poll() is None and len(_files(out)) < wanted:
        time.sleep(0.05)
    process.kill()
    process.wait()
    return len(_files(out))


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*.parquet"))


def digests(folder: Path) -> dict[str, str]:
    """Return the digests of a folder's files of scores."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in _files(folder)}


if __name__ == "__main__":
    main()
