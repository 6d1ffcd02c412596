"""What reads scores, pairs and requests: files of other rankers, calibrators, exported folders, HTTP, services."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from faults.parsers import Parser, files_of
from faults.world import TRAINED
from helpers.asgi import ask
from helpers.scored_pools import list_rows, pair_table, scored_pools, write_jsonl, write_run

from icalib.api.exports import pair_texts
from icalib.core.component import validated
from icalib.core.errors import IcalibError
from icalib.core.files import read_json
from icalib.data.schema import Pool
from icalib.data.settings import PrepareSettings
from icalib.exports.texts import EXPORT_FILE
from icalib.external.apply import apply
from icalib.external.calibrator import CALIBRATOR_FILE, Calibrator
from icalib.external.collect import collect_scores
from icalib.external.endpoint import Endpoint
from icalib.external.fit import CalibrationSettings, calibrate
from icalib.external.labelled import read_labelled
from icalib.external.score_file import ScoreFile
from icalib.pipeline.score_pairs import claim, pairs_job
from icalib.serving.application import Application
from icalib.serving.limits import Limits
from icalib.serving.served_run import QuestionScorer, ServedRun
from icalib.serving.token import read_token


def scores(root: Path) -> Iterator[tuple[str, Parser]]:
    """Score files in each format, calibrators, and scores of a service that are resumed.

    Args:
        root: folder for the examples' files.
    """
    pools = scored_pools(24, 3)
    root.mkdir()
    run, qrels = write_run(root, pools)
    write_jsonl(root / "lists.jsonl", list_rows(pools))
    write_jsonl(root / "pairs.jsonl", pair_table(pools).to_pylist())
    pq.write_table(pair_table(pools), root / "pairs.parquet", row_group_size=20)
    pq.write_table(pa.Table.from_pylist(list_rows(pools)), root / "lists.parquet")
    (root / "pairs.csv").write_text(_csv(pair_table(pools)))
    single = [{f"scores.{path.suffix[1:]}": path.read_bytes()} for path in sorted(root.glob("*.[jcp]*"))]
    trec = {"scores.run": run.read_bytes(), "qrels.txt": qrels.read_bytes()}
    yield "score file", Parser((*single, trec), _calibrate, {})
    fitted = calibrate(pools, CalibrationSettings(precision=0.6))
    fitted.calibrator.save(root / "calibrator")
    unchecked = {
        name: value for name, value in read_json(root / "calibrator" / CALIBRATOR_FILE).items() if name != "checksum"
    }
    calibrator = {CALIBRATOR_FILE: json.dumps(unchecked).encode()}
    fixed = {"scores.jsonl": (root / "lists.jsonl").read_bytes()}
    yield "calibrator", Parser((calibrator,), _apply, fixed)
    yield "scores to apply to", Parser(tuple(single), _apply, calibrator)
    collected = {"scores.jsonl": b'{"pool_id": "a", "scores": [0.5, 1], "label": 0}\n', "endpoint.json": b'{"a": 1}'}
    yield "scores of a service", Parser((collected,), _collect, {})
    answers = [
        [{"index": 1, "score": 0.5}, {"index": 0, "score": 2}],
        {"results": [{"index": 0, "relevance_score": 1}]},
    ]
    yield "answer of a service", Parser(tuple({"a.json": json.dumps(one).encode()} for one in answers), _answer, {})


def served(world: Path) -> Iterator[tuple[str, Parser]]:
    """Pairs to score, requests to a server, and exported folders.

    Args:
        world: folder of a finished run; see `faults.world`.
    """
    run = world / TRAINED
    pairs = pq.read_table(world / "pairs.parquet")
    whole = pa.table({"context": ["hello", "my card"], "candidates": [["a", "b"], ["c"]]})
    turns = pa.table({"context": [[{"speaker": "user", "text": "hello"}]] * 2, "candidate": ["a", "b"]})
    examples = tuple({"pairs.parquet": _parquet(table)} for table in (pairs.slice(0, 6), whole, turns))
    yield "pairs", Parser(examples, lambda folder: _score(run, folder), {})
    scorer = QuestionScorer.load(run)

    async def score(pool: Pool) -> pa.Table:
        return scorer.score([pool])[0]

    application = Application(ServedRun.open(run), score, Limits(max_candidates=8), "0123456789abcdef")
    context = [{"speaker": "user", "text": "my card is lost"}]
    bodies = {
        "/rerank": {"query": "my card", "texts": ["a", "b"], "raw_scores": False, "return_text": True},
        "/v1/rerank": {"query": "my card", "documents": ["a", {"text": "b"}], "top_n": 1, "model": "m"},
        "/v2/rerank": {"query": "my card", "documents": ["a", "b"], "return_documents": True},
        "/predict": {"context": context, "candidates": ["a", "b"], "sets": 0.5, "confidence": 0.9, "id": "1"},
    }
    requests = tuple(
        {"path.txt": path.encode(), "body.json": json.dumps(body).encode(), "token.txt": b"Bearer 0123456789abcdef"}
        for path, body in bodies.items()
    )
    yield "HTTP request", Parser(requests, lambda folder: _request(application, folder), {})
    if (world / "exported").is_dir():
        exported = {EXPORT_FILE: (world / "exported" / EXPORT_FILE).read_bytes()}
        others = {name: data for name, data in files_of(world / "exported").items() if name not in exported}
        yield "export", Parser((exported,), lambda folder: pair_texts(folder, ["Hi."], ["a", "b"]), others)


def settings() -> Iterator[tuple[str, Parser]]:
    """Small files that options name: intent maps and tokens."""
    maps = [{"thanks": "PF", "*": None}, {"user": {"thanks": ["PF", "GG"]}, "agent": {"thanks": "GG", "_note": "x"}}]
    examples = tuple({"map.json": json.dumps(one).encode()} for one in maps)
    yield "intent map", Parser(examples, _intent_map, {})
    yield "token", Parser(({"token": b"0123456789abcdef\n"},), _token, {})


def _calibrate(folder: Path) -> None:
    (path,) = folder.glob("scores.*")
    qrels = folder / "qrels.txt"
    labelled = read_labelled(ScoreFile.open(path), qrels if qrels.is_file() else None)
    calibrate(labelled.pools, CalibrationSettings(precision=0.6))


def _apply(folder: Path) -> None:
    (path,) = folder.glob("scores.*")
    out = folder / f"out.{'parquet' if path.suffix == '.parquet' else 'jsonl'}"
    calibrator, file = Calibrator.load(folder), ScoreFile.open(path)
    with contextlib.suppress(IcalibError):
        apply(calibrator, file, out)
    apply(calibrator, file, out, any_range=True)


def _collect(folder: Path) -> None:
    collect_scores(Endpoint("http://127.0.0.1:9"), [], folder, {"a": 1}, lambda done, total: None)


def _answer(folder: Path) -> None:
    """Read a service's answer without a service."""
    endpoint = Endpoint("http://127.0.0.1:9")
    data = (folder / "a.json").read_bytes()
    for protocol in ("tei", "cohere"):
        endpoint.protocol = protocol
        endpoint._opener.open = lambda request, timeout: _Answer(data)  # type: ignore[method-assign,assignment]
        with contextlib.suppress(IcalibError):
            endpoint.scores("a", ["b", "c"])


class _Answer:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def __enter__(self) -> _Answer:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def read(self, size: int) -> bytes:
        return self._data[:size]


def _score(run: Path, folder: Path) -> None:
    job = pairs_job(run, folder / "pairs.parquet", 4)
    claim(job, folder / "out")
    for index, shard in enumerate(job.shards()):
        job.compute_shard(index, shard, folder / "out", torch.device("cpu"))


def _request(application: Application, folder: Path) -> None:
    path, token = ((folder / name).read_bytes().decode("latin-1") for name in ("path.txt", "token.txt"))
    body = (folder / "body.json").read_bytes()
    answered = ask(application, path, body, headers={"authorization": token})
    if answered.status != 200 and not 400 <= answered.status < 500:
        raise AssertionError(f"status {answered.status}: {answered.body!r}")
    if not isinstance(answered.value, dict | list):
        raise AssertionError(f"not a JSON object or list: {answered.body!r}")


def _intent_map(folder: Path) -> None:
    validated(PrepareSettings, {"map_intents": str(folder / "map.json")})


def _token(folder: Path) -> None:
    read_token(folder / "token", "0.0.0.0", lambda line: None)


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=4)
    return sink.getvalue().to_pybytes()


def _csv(table: Any) -> str:
    rows = [",".join(table.column_names), *(",".join(map(str, row.values())) for row in table.to_pylist())]
    return "\n".join(rows) + "\n"
