"""What reads scores, pairs and requests: files of other rankers, calibrators, exported folders, HTTP."""

from __future__ import annotations

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
from helpers.scored_pools import score_rows, scored_pools, write_scores

from icalib.api.exports import pair_texts
from icalib.core.component import validated
from icalib.data.schema import Pool
from icalib.data.settings import PrepareSettings
from icalib.exports.texts import EXPORT_FILE
from icalib.external.apply import apply
from icalib.external.calibrator import CALIBRATOR_FILE, Calibrator
from icalib.external.fit import calibrate
from icalib.external.scores import Columns, read_labelled
from icalib.pipeline.score_pairs import claim, pairs_job
from icalib.serving.application import create_app
from icalib.serving.auth_token import read_token
from icalib.serving.limits import Limits
from icalib.serving.served_run import QuestionScorer, ServedRun


def scores(root: Path) -> Iterator[tuple[str, Parser]]:
    """Score files in each format, and calibrators.

    Args:
        root: folder for the examples' files.
    """
    pools = scored_pools(24, 3)
    root.mkdir()
    files = [write_scores(root / f"scores.{suffix}", score_rows(pools)) for suffix in ("parquet", "jsonl", "csv")]
    examples = tuple({path.name: path.read_bytes()} for path in files)
    yield "score file", Parser(examples, _calibrate, {})
    calibrator = {CALIBRATOR_FILE: calibrate(pools).model_dump_json().encode()}  # without a checksum
    yield "calibrator", Parser((calibrator,), _apply, examples[1])
    yield "scores to apply to", Parser(examples, _apply, calibrator)


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

    application = create_app(ServedRun.open(run), score, Limits(max_candidates=8), "0123456789abcdef")
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
    calibrate(read_labelled(path, Columns()))


def _apply(folder: Path) -> None:
    (path,) = folder.glob("scores.*")
    apply(Calibrator.load(folder), path, folder / f"out{path.suffix}", Columns())


def _score(run: Path, folder: Path) -> None:
    job = pairs_job(run, folder / "pairs.parquet", 4)
    claim(job, folder / "out")
    for index, shard in enumerate(job.shards()):
        job.compute_shard(index, shard, folder / "out", torch.device("cpu"))


def _request(application: Any, folder: Path) -> None:
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
