"""What reads files that others may have written: valid examples, and how each is read.

Settings, job files, tables and spaces are changed by `tests/unit/test_user_input.py`, requests by test_serving.py.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from faults.fuzz import Files, Parser
from faults.world import TRAINED
from helpers.scored_pools import score_rows, scored_pools

from icalib.core.errors import IcalibError
from icalib.core.run_folder import RunFolder
from icalib.data.pools import as_pools, iter_pools, prepared_inputs, read_pool_set
from icalib.data.preview import preview
from icalib.data.questions import read_questions
from icalib.data.schema import checksum
from icalib.data.settings import PrepareSettings
from icalib.data.sources.readers import open_source
from icalib.pipeline.finished import FinishedRun
from icalib.pipeline.score_pairs import claim, pairs_job
from icalib.reports.html import write_report
from icalib.score_files.calibrator import CALIBRATOR_FILE, Calibrator, calibrate
from icalib.score_files.scores import Columns, apply, read_labelled

_SAMPLES = Path(__file__).parents[1] / "contracts/samples/readers"


def all_parsers(world: Path) -> dict[str, Parser]:
    """Return parsers by their names, for a world with pools and a finished run with a model."""
    return dict([*_readers(), *_scores(), *_artifacts(world), *_pairs(world)])


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
    pools = scored_pools(24, size=3)
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


def _pairs(world: Path) -> Iterator[tuple[str, Parser]]:
    """Pairs that a finished run scores."""
    run = world / TRAINED
    tables = (
        pa.table({"context": [["hello"]], "candidate": ["a"]}),
        pa.table({"context": ["hello", "my card"], "candidates": [["a", "b"], ["c"]]}),
        pa.table({"context": [[{"speaker": "user", "text": "hello"}]] * 2, "candidate": ["a", "b"]}),
    )
    yield "pairs", Parser(tuple({"pairs.parquet": _parquet(table)} for table in tables), lambda at: _score(run, at))


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


def _score(run: Path, folder: Path) -> None:
    job = pairs_job(run, folder / "pairs.parquet", 4)
    claim(job, folder / "out")
    for index, shard in enumerate(job.shards()):
        job.compute_shard(index, shard, folder / "out", torch.device("cpu"))
