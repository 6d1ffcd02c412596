"""What reads files, requests and words that others may have written: valid examples, and how each is read.

Settings, job files, tables and spaces are changed by `tests/unit/test_user_input.py`.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from faults.fuzz import Files, Parser
from faults.world import SWEEP_FOLDER, TRAINED
from helpers.asgi import ask
from helpers.scored_pools import score_rows, scored_pools

from icalib.cli import main
from icalib.core.errors import IcalibError
from icalib.core.run_folder import RunFolder
from icalib.data.pools import as_pools, iter_pools, prepared_inputs, read_pool_set
from icalib.data.preview import preview
from icalib.data.questions import read_questions
from icalib.data.schema import Pool, checksum
from icalib.data.settings import PrepareSettings
from icalib.data.sources.readers import open_source
from icalib.external.apply import apply
from icalib.external.calibrator import CALIBRATOR_FILE, Calibrator
from icalib.external.fit import calibrate
from icalib.external.scores import Columns, read_labelled
from icalib.pipeline.inference import FinishedRun
from icalib.pipeline.score_pairs import claim, pairs_job
from icalib.reports.html import write_report
from icalib.reports.sweep_views import write_views
from icalib.serving.application import create_app
from icalib.serving.limits import Limits
from icalib.serving.served_run import QuestionScorer, ServedRun
from icalib.sweeps.folder import SweepFolder
from icalib.sweeps.trials import sweep_trials

_SAMPLES = Path(__file__).parents[1] / "contracts/samples/readers"
_TOKEN = "0123456789abcdef"
_BODIES = {
    "/rerank": {"query": "my card", "texts": ["a", "b"], "raw_scores": False, "return_text": True},
    "/v1/rerank": {"query": "my card", "documents": ["a", {"text": "b"}], "top_n": 1, "model": "m"},
    "/v2/rerank": {"query": "my card", "documents": ["a", "b"], "return_documents": True},
    "/predict": {
        "context": [{"speaker": "user", "text": "my card"}], "candidates": ["a", "b"], "sets": 0.5, "confidence": 0.9,
    },
}  # fmt: skip


def all_parsers(world: Path) -> dict[str, Parser]:
    """Return parsers by their names.

    Args:
        world: pools, a finished run with a model and, perhaps, a finished sweep; see `faults.world`.
    """
    return dict([*_readers(), *_scores(), *_artifacts(world), *_used(world)])


def _readers() -> Iterator[tuple[str, Parser]]:
    """Readers of dialogues and pools, with the format named and detected."""
    for samples in sorted(_SAMPLES.iterdir()):
        files = _files(samples / "good")
        only = next(iter(files)) if len(files) == 1 else ""

        def read(folder: Path, format: str = samples.name, only: str = only) -> None:
            for named in (format, None):
                with contextlib.suppress(IcalibError):
                    source = open_source(folder / only, named)
                    for records in (source.dialogues, source.answers, source.pools):
                        list(records(lambda error, raw: None))
            list(preview(folder / only, PrepareSettings(format=format)))

        yield f"reader {samples.name}", Parser((files,), read)


def _scores() -> Iterator[tuple[str, Parser]]:
    """Score files in each format, and calibrators."""
    pools = scored_pools(24, 3)
    rows = score_rows(pools)
    parquet = _parquet(pa.Table.from_pylist(rows))
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    examples: tuple[Files, ...] = ({"scores.parquet": parquet}, {"scores.jsonl": lines})
    yield "score file", Parser(examples, lambda folder: calibrate(read_labelled(_only(folder), Columns())))
    calibrator = {CALIBRATOR_FILE: calibrate(pools).model_dump_json().encode()}  # without a checksum
    yield "calibrator", Parser((calibrator,), _apply, examples[1])


def _artifacts(world: Path) -> Iterator[tuple[str, Parser]]:
    """What icalib wrote itself, without the digests that would notice each change before it is parsed."""
    question = '{{"context": [{{"speaker": "user", "text": "Hi."}}], "candidates": ["a", "b"], "id": "{}"}}\n'
    questions = "".join(question.format(name) for name in ("q1", "q2")).encode()
    yield "questions", Parser(({"q.jsonl": questions},), lambda folder: read_questions(folder / "q.jsonl"))
    pools = _files(world / "pools")
    unchecked = {**json.loads(pools["pools.json"]), "files": {}}
    sealed = json.dumps({**unchecked, "checksum": checksum(unchecked)}).encode()
    yield "pool folder", Parser(({**pools, "pools.json": sealed},), _read_pools)
    run = world / TRAINED
    FinishedRun.open(run).load_members()  # imports what would take a trial's time, or be cut off in the middle
    records = _files(run, "config", "provenance", "stages", "result", "members", "fitted", "rounds", "chosen")
    tables = _files(run, "training", "predictions", "metrics")
    yield "run folder", Parser(({**records, **tables}, records), _read_run, {**tables, **_files(run, "checkpoints")})
    if (world / SWEEP_FOLDER).is_dir():
        found = {name: data for name, data in _files(world / SWEEP_FOLDER).items() if "/" not in name}
        yield "sweep folder", Parser((found,), _read_sweep)


def _used(world: Path) -> Iterator[tuple[str, Parser]]:
    """What a finished run reads: pairs to score, requests to a server, words of a command line."""
    run = world / TRAINED
    tables = (
        pa.table({"context": [["hello"]], "candidate": ["a"]}),
        pa.table({"context": ["hello", "my card"], "candidates": [["a", "b"], ["c"]]}),
        pa.table({"context": [[{"speaker": "user", "text": "hello"}]] * 2, "candidate": ["a", "b"]}),
    )
    yield "pairs", Parser(tuple({"pairs.parquet": _parquet(table)} for table in tables), lambda at: _score(run, at))
    scorer = QuestionScorer.load(run)

    async def score(pool: Pool) -> pa.Table:
        return scorer.score([pool])[0]

    application = create_app(ServedRun.open(run), score, Limits(max_candidates=8), _TOKEN)
    requests = tuple(
        {"path.txt": path.encode(), "body.json": json.dumps(body).encode(), "token.txt": f"Bearer {_TOKEN}".encode()}
        for path, body in _BODIES.items()
    )
    yield "HTTP request", Parser(requests, lambda folder: _request(application, folder))
    lines = (
        ["show", "icast", "--set", "regime.num_rounds=2"],
        ["prepare", str(_SAMPLES / "table/good/export.csv"), "--preview", "--format", "table", "--columns", "id=id"],
        ["evaluate", str(run), "--json"],
        ["report", str(run), "--out", "report.html"],
        ["predict", str(run), str(world / "questions.jsonl"), "--sets", "0.9"],
        ["run", "bm25", "--dry", "--data", str(world / "pools"), "--limit", "train=9,test=4", "--labelled", "0.5"],
        ["curve", "bert", "--data", str(world / "nowhere"), "--fractions", "0.1,0.2"],
    )
    yield "command line", Parser(tuple({"words.txt": "\n".join(line).encode()} for line in lines), _run_command)


def _files(folder: Path, *names: str) -> Files:
    """Return the files of a folder, or those whose path starts with one of some names."""
    paths = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: path.read_bytes() for name, path in paths.items() if not names or name.startswith(names)}


def _only(folder: Path) -> Path:
    (path,) = folder.glob("scores.*")
    return path


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=4)
    return sink.getvalue().to_pybytes()


def _apply(folder: Path) -> None:
    apply(Calibrator.load(folder), _only(folder), folder / f"out{_only(folder).suffix}", Columns())


def _read_pools(folder: Path) -> None:
    read_pool_set(folder)
    prepared_inputs(folder)
    for split in ("train", "validation", "test"):
        for batch in iter_pools(folder, split):
            list(as_pools(batch))


def _read_run(folder: Path) -> None:
    finished = FinishedRun.open(folder)
    run = RunFolder.open(folder)
    for read in (
        run.round_summaries, run.training, run.metrics, run.shifts, lambda: run.stages,
        lambda: run.predictions("test"), lambda: run.predicted_intents("test"),
        lambda: write_report([run], folder / "report.html", "a"),
    ):  # fmt: skip
        with contextlib.suppress(IcalibError):
            read()
    finished.load_members()


def _read_sweep(folder: Path) -> None:
    sweep = SweepFolder.open(folder)
    for read in (lambda: sweep.settings, lambda: sweep_trials(sweep), sweep.best):
        with contextlib.suppress(IcalibError):
            read()
    write_views(sweep)


def _score(run: Path, folder: Path) -> None:
    job = pairs_job(run, folder / "pairs.parquet", 4)
    claim(job, folder / "out")
    for index, shard in enumerate(job.shards()):
        job.compute_shard(index, shard, folder / "out", torch.device("cpu"))


def _request(application: Any, folder: Path) -> None:
    path, token = ((folder / name).read_bytes().decode("latin-1") for name in ("path.txt", "token.txt"))
    body = (folder / "body.json").read_bytes()
    answered = ask(application, path, body, headers={"authorization": token})
    assert answered.status == 200 or 400 <= answered.status < 500, f"status {answered.status}: {answered.body!r}"
    assert isinstance(answered.value, dict | list), f"not a JSON object or list: {answered.body!r}"


def _run_command(folder: Path) -> None:
    words = (folder / "words.txt").read_bytes().decode("utf-8", "surrogateescape").replace("\0", "").split("\n")
    err, argv = io.StringIO(), sys.argv
    sys.argv = ["icalib", *words]
    try:
        with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
            main()
    except SystemExit as end:
        if end.code not in (0, 2, None):
            raise AssertionError(f"exit code {end.code}: {err.getvalue()}") from end
    finally:
        sys.argv = argv
