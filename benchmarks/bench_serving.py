"""Latency and throughput of `icalib serve` beside stock `CrossEncoder.predict` behind the same server code.

Both rank with the same backbone, in server processes of their own; clients keep their connections. Needs icalib[serve].
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import BACKBONE, WORK, num_cores, text_pairs

if TYPE_CHECKING:
    import pyarrow as pa

    from icalib.data.schema import Pool

CLIENTS = (1, 8, 32)
ROUNDS = 3
REQUESTS = 64
"""Requests of a measurement, shared among its clients."""


def main() -> None:
    """Measure both servers in turn; `main RUN` takes a run of yours instead of a small one."""
    run = Path(sys.argv[1]) if len(sys.argv) > 1 else _small_run()
    bodies = _bodies(run)
    spawn = get_context("spawn")
    servers: dict[str, tuple[Any, int]] = {}
    for name in ("icalib", "CrossEncoder"):
        ready, child = spawn.Pipe()
        process = spawn.Process(target=_serve, args=(name, run, child), daemon=True)
        process.start()
        servers[name] = process, ready.recv()
    print(f"\nServing: {len(json.loads(bodies[0])['candidates'])} candidates a request, {num_cores()} cores")
    print(f"{'clients':>7}  {'server':<14}{'p50 ms':>9}{'p99 ms':>9}{'requests/s':>12}")
    for num_clients in CLIENTS:
        measured: dict[str, list[tuple[list[float], float]]] = {name: [] for name in servers}
        for _ in range(ROUNDS):
            for name, (_, port) in servers.items():
                measured[name].append(_measure(port, bodies, num_clients))
        for name, rounds in measured.items():
            latencies = sorted(seconds for found, _ in rounds for seconds in found)
            rate = len(latencies) / sum(elapsed for _, elapsed in rounds)
            p50, p99 = (1000 * latencies[int(q * (len(latencies) - 1))] for q in (0.5, 0.99))
            print(f"{num_clients:>7}  {name:<14}{p50:>9.1f}{p99:>9.1f}{rate:>12.1f}", flush=True)
    for process, _ in servers.values():
        process.terminate()


def _small_run() -> Path:
    """A run of `bert` that has seen a few pools: its speed is that of a longer one."""
    from icalib.api.runs import run
    from icalib.data.prepare import PrepareSettings, prepare
    from icalib.data.simulate import simulate

    source, pools = WORK / "serving.jsonl", WORK / "serving"
    if not source.is_file():
        WORK.mkdir(parents=True, exist_ok=True)
        simulate(source, num_dialogues=120, seed=1)
    prepare(source, pools, PrepareSettings(labelled=1.0))
    return run("bert", pools, limit=20, settings={"regime.training.epochs": 1}, executor="local", runs=WORK).path


def _bodies(run: Path) -> list[bytes]:
    from icalib.data.pools import as_pools, iter_pools
    from icalib.pipeline.finished import FinishedRun

    data = FinishedRun.open(run).config.data
    pools = [pool for batch in iter_pools(data, "test") for pool in as_pools(batch)][:REQUESTS]
    return [
        json.dumps({"context": [turn.text for turn in pool.context], "candidates": pool.candidates}).encode()
        for pool in pools
    ]


def _serve(name: str, run: Path, ready: Any) -> None:
    import torch
    import uvicorn

    from icalib.pipeline.finished import FinishedRun
    from icalib.serving.application import create_app
    from icalib.serving.limits import Limits
    from icalib.serving.served_run import Batcher, QuestionScorer

    torch.set_num_threads(num_cores())
    if name == "icalib":
        scorer = QuestionScorer.load(run)
        scorer.warm_up()
        batcher = Batcher(scorer.score, scorer.max_batch)
    else:
        batcher = Batcher(_stock(), 16)
    application: Any = create_app(FinishedRun.open(run), batcher, Limits())
    server = uvicorn.Server(uvicorn.Config(application, port=0, log_level="error", access_log=False))
    startup = server.startup

    async def announced(sockets: Any = None) -> None:
        await startup(sockets)
        ready.send(server.servers[0].sockets[0].getsockname()[1])

    server.startup = announced
    server.run()


def _stock() -> Any:
    """Score pools with sentence-transformers, as a table of icalib's columns."""
    import numpy as np
    import pyarrow as pa
    from sentence_transformers import CrossEncoder

    from icalib.core.run_tables import PREDICTION_SCHEMA
    from icalib.encoders.backbone import backbone_path

    model = CrossEncoder(backbone_path(BACKBONE), num_labels=1, max_length=512)

    def score(pools: Sequence[Pool]) -> list[pa.Table]:
        pairs, _ = text_pairs(pools)
        prob = np.asarray(model.predict(pairs, show_progress_bar=False), dtype=float)
        sizes = [len(pool.candidates) for pool in pools]
        tables: list[pa.Table] = []
        for each in np.split(prob, np.cumsum(sizes)[:-1]):
            zeros = np.zeros(len(each))
            columns = {"logit": each, "prob": each, **dict.fromkeys(("prob_var", "logit_var"), zeros)}
            columns["mutual_information"] = zeros
            tables.append(
                pa.table({field.name: columns[field.name] for field in PREDICTION_SCHEMA if field.name in columns})
            )
        return tables

    return score


def _measure(port: int, bodies: Sequence[bytes], num_clients: int) -> tuple[list[float], float]:
    """Return the seconds of each request, and those that all took."""
    shares = [bodies[client::num_clients] for client in range(num_clients)]
    started = time.perf_counter()
    with ThreadPoolExecutor(num_clients) as clients:
        found = list(clients.map(lambda share: _ask(port, share), shares))
    return [seconds for each in found for seconds in each], time.perf_counter() - started


def _ask(port: int, bodies: Sequence[bytes]) -> list[float]:
    connection = HTTPConnection("127.0.0.1", port)
    seconds: list[float] = []
    for body in bodies:
        started = time.perf_counter()
        connection.request("POST", "/predict", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{answer.status}: {content!r:.200}")
        seconds.append(time.perf_counter() - started)
    connection.close()
    return seconds


if __name__ == "__main__":
    main()
