"""Everything that reads what others may have written: valid examples of it, and how it is read."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.sweeps import SHARDS

from icalib.api.settings import changed, from_config, parsed_settings, variant_of
from icalib.cli import main
from icalib.cli.jobs import command_words
from icalib.cli.parsing import parsed_fractions, parsed_limit, parsed_pairs
from icalib.core.errors import IcalibError
from icalib.core.job_file import read_job_file
from icalib.core.run_folder import RunFolder
from icalib.core.storage import local_path
from icalib.data.pools import as_pools, iter_pools, prepared_inputs, read_pool_set
from icalib.data.preview import preview
from icalib.data.questions import read_questions
from icalib.data.schema import checksum
from icalib.data.settings import PrepareSettings
from icalib.data.sources.readers import open_source
from icalib.models.ranker import load_ranker
from icalib.pipeline.inference import FinishedRun
from icalib.reports.html import write_report
from icalib.reports.sweep_views import write_views
from icalib.sweeps.folder import SweepFolder
from icalib.sweeps.space import load_space
from icalib.sweeps.trials import sweep_trials
from icalib.tables.table import load_table

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "tests/contracts/samples/readers"

Files = Mapping[str, bytes]
"""A valid example: content by relative path."""


@dataclass(frozen=True)
class Parser:
    """What is read, and by what.

    Attributes:
        examples: valid ones, each of which may be changed.
        read: reads the folder in which an example was written; may only raise icalib's errors.
        fixed: files that are never changed.
    """

    examples: tuple[Files, ...]
    read: Callable[[Path], object]
    fixed: Files


def _parser(read: Callable[[Path], object], *examples: Files, fixed: Files | None = None) -> Parser:
    return Parser(examples, read, fixed or {})


def files_of(folder: Path, *names: str) -> Files:
    """Return the files of a folder, or those whose path starts with one of some names."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and (not names or str(path.relative_to(folder)).startswith(names))
    }


def readers() -> Iterator[tuple[str, Parser]]:
    """Readers of dialogues and pools, with the format named and detected."""
    for samples in sorted(SAMPLES.iterdir()):
        files = files_of(samples / "good")
        only = next(iter(files)) if len(files) == 1 else ""

        def read(folder: Path, format: str = samples.name, only: str = only) -> None:
            path = folder / only
            for named in (format, None):
                with contextlib.suppress(IcalibError):
                    source = open_source(path, named)
                    for records in (source.dialogues, source.answers, source.pools):
                        list(records(lambda error, raw: None))
            list(preview(path, PrepareSettings(format=format)))

        yield f"reader {samples.name}", _parser(read, files)


def texts() -> Iterator[tuple[str, Parser]]:
    """Files that users write: questions, tables, job files, configs, sweep spaces; and values of options."""
    question = '{{"context": [{{"speaker": "user", "text": "Hi."}}], "candidates": ["a", "b"], "id": "{}"}}\n'
    questions = "".join(question.format(name) for name in ("q1", "q2")).encode()
    yield "questions", _parser(lambda folder: read_questions(folder / "q.jsonl"), {"q.jsonl": questions})
    tables = [{"t.yaml": path.read_bytes()} for path in sorted((ROOT / "icalib/tables").glob("*.yaml"))]
    yield "table", _parser(lambda folder: load_table(str(folder / "t.yaml")), *tables)
    jobs = [{"j.yaml": path.read_bytes()} for path in sorted((ROOT / "jobs").glob("*.yaml"))]
    yield "job file", _parser(_read_job, *jobs)
    yield "sweep space", _parser(_read_space, {"s.py": SHARDS.encode()})
    options = b"\n".join(option.encode() for option in OPTIONS)
    yield "option", _parser(_read_options, {"options.txt": options})


OPTIONS = (
    "regime.num_rounds=2", "encoder.budget={max_context_tokens: 60, max_candidate_tokens: 20}", "train=200,test=40",
    "0.01,0.03,0.1", "customer=user,*=agent", "id=ticket,text=body", "s3://bucket/pools/mine",
    "icast@head.kernel=matern",
)  # fmt: skip


def artifacts(world: Path, run: str, sweep: str = "") -> Iterator[tuple[str, Parser]]:
    """What icalib wrote itself, without the digests that would notice each change before it is parsed.

    Args:
        world: folder of pools, runs and a sweep; see `faults.world`.
        run: folder of a finished run in it, with a model.
        sweep: folder of a finished sweep in it.
    """
    pools = files_of(world / "pools")
    unchecked = {**json.loads(pools["pools.json"]), "files": {}}
    sealed = json.dumps({**unchecked, "checksum": checksum(unchecked)})
    yield "pool folder", _parser(_read_pools, {**pools, "pools.json": sealed.encode()})
    folder = world / run
    load_ranker(folder / "checkpoints/final")  # imports what would take a trial's time, or be cut off in the middle
    yield "checkpoint", _parser(load_ranker, files_of(folder / "checkpoints/final"))
    records = files_of(folder, "config", "provenance", "stages", "result", "members", "fitted", "rounds", "chosen")
    tables = files_of(folder, "training", "predictions", "metrics")
    model = files_of(folder, "checkpoints")
    yield "run folder", _parser(_read_run, {**records, **tables}, records, fixed={**tables, **model})
    config = {"config.yaml": (folder / "config.yaml").read_bytes()}
    yield "config", _parser(lambda folder: from_config(folder / "config.yaml"), config)
    if sweep:
        found = {name: data for name, data in files_of(world / sweep).items() if "/" not in name}
        yield "sweep folder", _parser(_read_sweep, found)


def commands(world: Path, run: str) -> Iterator[tuple[str, Parser]]:
    """Command lines, of which words are changed; they run in this process."""
    lines = [
        ["show", "icast", "--set", "regime.num_rounds=2"],
        ["show", "bert-fp", "--preset", "light"],
        ["prepare", str(SAMPLES / "table/good/export.csv"), "--preview", "--format", "table", "--columns", "id=id"],
        ["evaluate", str(world / run), "--json"],
        ["report", str(world / run), "--out", "report.html"],
        ["predict", str(world / run), str(world / "questions.jsonl"), "--sets", "0.9"],
        ["run", "bm25", "--dry", "--data", str(world / "pools"), "--limit", "train=9,test=4", "--labelled", "0.5"],
        ["curve", "bert", "--data", str(world / "nowhere"), "--fractions", "0.1,0.2"],
    ]
    examples = [{"words.txt": "\n".join(line).encode()} for line in lines]
    yield "command line", _parser(_run_command, *examples)


def _run_command(folder: Path) -> None:
    words = (folder / "words.txt").read_bytes().decode("utf-8", "surrogateescape").replace("\0", "").split("\n")
    out, err, argv = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["icalib", *words]
    try:
        with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as end:
        if end.code not in (0, 2, None):
            raise AssertionError(f"exit code {end.code}: {err.getvalue()}") from end
    finally:
        sys.argv = argv


def _read_job(folder: Path) -> None:
    path = folder / "j.yaml"
    command_words(read_job_file(path, {}), path)


def _read_space(folder: Path) -> None:
    load_space(str(folder / "s.py")).points()


def _read_options(folder: Path) -> None:
    texts = (folder / "options.txt").read_bytes().decode("utf-8", "surrogateescape").split("\n")
    read: tuple[Callable[[str], Any], ...] = (
        lambda text: changed(variant_of("icast", None), parsed_settings([text])),
        parsed_limit, parsed_fractions,
        lambda text: parsed_pairs("--columns", [text]), local_path,
        lambda text: variant_of(text, None), load_space, load_table,
    )  # fmt: skip
    for text in texts:
        for one in read:
            with contextlib.suppress(IcalibError):
                one(text)


def _read_pools(folder: Path) -> None:
    read_pool_set(folder)
    prepared_inputs(folder)
    for split in ("train", "validation", "test"):
        for batch in iter_pools(folder, split):
            list(as_pools(batch))


def _read_run(folder: Path) -> None:
    finished = FinishedRun.open(folder)
    run = RunFolder.open(folder)
    for read in (run.round_summaries, run.training, run.metrics, run.shifts, lambda: run.stages):
        with contextlib.suppress(IcalibError):
            read()
    for split in ("validation", "test"):
        with contextlib.suppress(IcalibError):
            run.predictions(split)
            run.predicted_intents(split)
    with contextlib.suppress(IcalibError):
        write_report([run], folder / "report.html", "a")
    finished.load_members()


def _read_sweep(folder: Path) -> None:
    sweep = SweepFolder.open(folder)
    for read in (lambda: sweep.settings, lambda: sweep_trials(sweep), sweep.best):
        with contextlib.suppress(IcalibError):
            read()
    write_views(sweep)
