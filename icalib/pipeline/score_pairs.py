"""Scoring of Parquet files of any size: a job whose shards are spans of rows, each with its own output file.

A file has one pool a row (`context`, `candidates`) or, without that column, one pair (`context`, `candidate`). A
context is a text, a list of texts, or a list of objects with `speaker` and `text`, oldest first. A process holds one
chunk of rows and its scores in memory, whatever the size of the files.

Pools have the probabilities of `icalib predict`, for their numbers of candidates. How many candidates a pair competes
with is unknown: its probability is that for the run's own number, and it has no p_none.

Scores of deterministic methods depend on a row alone, up to rounding. Dropout draws one mask for a whole batch, so that
scores of MC dropout also depend on the rows that are scored together: chunks of a file's rows, which end where a span
of `rows_per_shard` does. The same job always gives the same scores, whichever process computes a span.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from pyarrow.fs import FileInfo, FileSelector, FileType, LocalFileSystem
from pydantic import Field
from typing_extensions import override

from icalib.core.component import Settings, Stored
from icalib.core.contents import damages, facts_of, read_record
from icalib.core.errors import DamagedFileError, DataError, SettingError
from icalib.core.events import Emit, Message, ignore
from icalib.core.files import atomic_write, is_unused, reading, write_json
from icalib.core.job import NOT_IN_DIGEST, Artifact, ShardedJob, kept
from icalib.core.storage import is_mirrored, location, opened, pull, push, remove
from icalib.core.text import abbreviated
from icalib.data.questions import Candidates, Pair, unlabelled_pool, validated
from icalib.data.schema import Pool, Utterance
from icalib.data.sources.rows import check_distinct
from icalib.metrics.pairs import P_NONE
from icalib.models.checkpoint import CHECKPOINT_VERSION
from icalib.pipeline.finished import FinishedRun, unlabelled_predictions, unlabelled_scores
from icalib.pipeline.loaded_ranker import LoadedRanker

RECORD = "_scored.json"
"""File in the output folder that says what is scored there, and with what; Arrow and Spark skip its name."""
_FILES = "files"
_COLUMNS = ("context", "candidate", "candidates")
_CHUNK_PAIRS, _CHUNK_POOLS = 2048, 64


class PairFile(Settings):
    """A Parquet file, as it was when the job was made."""

    path: Annotated[Stored, NOT_IN_DIGEST]
    name: str
    size: int
    modified_ns: int
    num_rows: int


class ScorePairsJob(ShardedJob):
    """Scores the rows of Parquet files."""

    version: ClassVar[int] = CHECKPOINT_VERSION + 5  # a pool's only candidate has a pair's probability
    verb: ClassVar[str] = "scoring"
    memory_advice: ClassVar[str] = "Lower `scoring.max_tokens_per_batch` of the run."

    run: Artifact
    """Run folder."""
    files: tuple[PairFile, ...]
    rows_per_shard: int = Field(default=20_000, ge=1)
    """Rows of an output file."""

    def shards(self) -> list[tuple[int, int, int]]:
        """Return file, first row and number of rows of each shard."""
        step = self.rows_per_shard
        return [
            (number, start, min(step, file.num_rows - start))
            for number, file in enumerate(self.files)
            for start in range(0, file.num_rows, step)
        ]

    @override
    def shard_path(self, folder: Path, index: int) -> Path:
        return folder / f"part-{index:06d}.parquet"

    @override
    def compute_shard(self, index: int, shard: Sequence[int], folder: Path, device: torch.device) -> None:
        number, start, num_rows = shard
        file = self.files[number]
        ranker = kept(self.run, lambda: LoadedRanker.load(self.run.path))
        writer: pq.ParquetWriter | None = None
        with atomic_write(self.shard_path(folder, index)) as temporary:
            for first_row, rows in _chunks(file.path, start, num_rows):
                chunk = _chunk(file.path, first_row, rows, ranker.run.context_turns)
                table = _output(file.name, chunk, ranker)
                writer = writer or pq.ParquetWriter(temporary, table.schema)
                writer.write_table(table)
            if writer is not None:
                writer.close()


def pairs_job(run: Path, pairs: Path, rows_per_shard: int) -> ScorePairsJob:
    """Return the job that scores a Parquet file, or all those of a folder, in the order of their names.

    An error says that the run can't be used or gives no probabilities to pairs, or which file or column is missing.
    """
    finished = FinishedRun.open(run)
    finished.check_has_models()
    # absolute, as tasks on a cluster run in another folder
    files = tuple(file for file in _files(pairs.absolute(), finished) if file.num_rows)
    if not files:
        raise DataError("no Parquet file with rows", "Give a Parquet file, or a folder of some.", path=location(pairs))
    artifact = Artifact(path=run.resolve(), digest=finished.digest)
    return ScorePairsJob(run=artifact, files=files, rows_per_shard=rows_per_shard)


def check_apart(pairs: Path, out: Path) -> None:
    """Refuse an output in the input folder, whose files would be replaced, or read as input the next time."""
    if out.resolve().is_relative_to(pairs.resolve()):
        raise SettingError(f"{location(out)} is in {location(pairs)}, which is read. Choose another --out.")


def claim(job: ScorePairsJob, folder: Path, emit: Emit = ignore) -> int:
    """Make the output folder the job's, and return how many of its shards are finished.

    Files that were damaged since are removed, to be scored again. A SettingError says that the folder has something
    else.
    """
    pull(folder)
    if (folder / RECORD).is_file():
        _remove_damaged(job, folder, emit)
    elif is_unused(folder):
        _write_record(job, folder)
    else:
        raise SettingError(f"{location(folder)} is not empty and has no {RECORD}. Choose another --out.")
    return len(_finished_shards(job, folder))


def release(job: ScorePairsJob, folder: Path) -> None:
    """Give up a folder in which nothing was finished, so that corrected pairs may have it."""
    if not _finished_shards(job, folder):
        remove(folder)


def finish(job: ScorePairsJob, folder: Path) -> None:
    """Share the files, and record what they contain."""
    push(folder)
    _write_record(job, folder)


def _finished_shards(job: ScorePairsJob, folder: Path) -> list[Path]:
    paths = (job.shard_path(folder, index) for index in range(len(job.shards())))
    return [path for path in paths if path.is_file()]


def _write_record(job: ScorePairsJob, folder: Path) -> None:
    files = {path.name: facts_of(path) for path in _finished_shards(job, folder)}
    write_json(folder / RECORD, {"digest": job.digest(), "identity": job.identity(), _FILES: files})
    push(folder / RECORD)


def _remove_damaged(job: ScorePairsJob, folder: Path, emit: Emit) -> None:
    path = folder / RECORD
    try:
        record = read_record(path)
        with reading(path):
            is_own = record["digest"] == job.digest()
            found = list(damages(folder, record[_FILES])) if is_own else []
    except DamagedFileError as error:
        raise DamagedFileError(path, error.found, "Choose another --out, or remove the folder.") from error
    if not is_own:
        raise SettingError(
            f"{location(folder)} has scores of other pairs, another run, another --rows-per-file or another "
            "version of icalib. Choose another --out, or remove the folder."
        )
    for damage in found:
        emit(Message(f"{damage.path} {damage.found}: scoring it again"))
        remove(Path(damage.path))


def _files(pairs: Path, run: FinishedRun) -> Iterator[PairFile]:
    filesystem, key = _filesystem(pairs)
    facts = filesystem.get_file_info(key)
    found = [facts]
    if facts.type == FileType.Directory:
        found = filesystem.get_file_info(FileSelector(key, recursive=True))
        found = sorted((each for each in found if _is_data(_below(each, key))), key=lambda each: each.path)
    for each in found:
        if each.type != FileType.File:
            continue
        name = _below(each, key) or each.base_name
        path = pairs if each.path == facts.path else pairs / name
        with _parsing(path), pq.ParquetFile(each.path, filesystem=filesystem) as file:
            num_rows, columns = file.metadata.num_rows, file.schema_arrow.names
        _check_columns(path, columns, run)
        yield PairFile(path=path, name=name, size=each.size, modified_ns=each.mtime_ns or 0, num_rows=num_rows)


def _below(facts: FileInfo, key: str) -> str:
    return facts.path.removeprefix(key).lstrip("/")


def _is_data(name: str) -> bool:
    """Whether a file of a folder is read; as for Arrow and Spark, `_` and `.` mark what others are writing."""
    return name.endswith(".parquet") and not any(part.startswith(("_", ".")) for part in name.split("/"))


def _filesystem(path: Path) -> tuple[Any, str]:
    filesystem, key = opened(path)
    return filesystem or LocalFileSystem(), key


def _check_columns(path: Path, names: Sequence[str], run: FinishedRun) -> None:
    check_distinct(location(path), 0, [name for name in names if name in _COLUMNS])
    if "context" not in names or not {"candidate", "candidates"} & set(names):
        raise DataError(
            f"found the columns {', '.join(sorted(names))}",
            "Expected `context`, and `candidate` (one pair a row) or `candidates` (one pool a row).",
            path=location(path),
        )
    if run.has_softmax and "candidates" not in names:
        raise SettingError(
            f"`{run.config.method}` gives probabilities to whole pools, so a pair has none. Write one pool a row, with "
            f"the column `candidates`, instead of {location(path)}."
        )


def _chunks(path: Path, start: int, num_rows: int) -> Iterator[tuple[int, Sequence[dict[str, Any]]]]:
    """Iterate over chunks of a file's rows, with the number of their first row."""
    filesystem, key = _filesystem(path)
    stop = start + num_rows
    with _parsing(path), pq.ParquetFile(key, filesystem=filesystem) as file:
        has_pools = "candidates" in file.schema_arrow.names
        columns = ["context", "candidates" if has_pools else "candidate"]
        size = _CHUNK_POOLS if has_pools else _CHUNK_PAIRS
        sizes = (file.metadata.row_group(index).num_rows for index in range(file.metadata.num_row_groups))
        edges = [0, *accumulate(sizes)]
        groups = [index for index, (begin, end) in enumerate(pairwise(edges)) if begin < stop and end > start]
        row = edges[groups[0]]
        for batch in file.iter_batches(batch_size=size, row_groups=groups, columns=columns):
            first, last = max(start, row), min(stop, row + batch.num_rows)
            if first < last:
                yield first, batch.slice(first - row, last - first).to_pylist()
            row += batch.num_rows


@contextmanager
def _parsing(path: Path) -> Generator[None, None, None]:
    """Turn what a damaged Parquet file raises into one error; a store that fails is tried again elsewhere."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        if isinstance(error, OSError) and is_mirrored(path):
            raise
        found = f"can't be read as Parquet ({' '.join(str(error).split()):.100})"
        raise DataError(found, "Write it again.", path=location(path)) from error


class _Chunk(NamedTuple):
    pools: list[Pool]
    has_pools: bool
    """Whether each pool is a row of the file, and not consecutive pairs of one context, which are scored together."""
    positions: list[tuple[int, int]]
    """Row and candidate of each pair."""

    @property
    def rows(self) -> list[int]:
        """Rows of the pairs, once each, in their order; those of the pools, where these are rows."""
        return list(dict.fromkeys(row for row, _ in self.positions))


def _chunk(path: Path, first_row: int, rows: Sequence[dict[str, Any]], context_turns: int) -> _Chunk:
    pools: list[tuple[tuple[Utterance, ...], list[str]]] = []
    has_pools = "candidates" in rows[0]
    positions: list[tuple[int, int]] = []
    previous: tuple[Utterance, ...] | None = None
    for row, values in enumerate(rows, start=first_row):
        turns, candidates = _row(values, location(path), row + 1)
        context = turns[-context_turns:]
        if not has_pools and context == previous:
            pools[-1][1].extend(candidates)
        else:
            pools.append((context, [*candidates]))
        previous = context
        positions.extend((row, index) for index in range(len(candidates)))
    return _Chunk([unlabelled_pool(f"{number:09d}", *each) for number, each in enumerate(pools)], has_pools, positions)


def _row(values: dict[str, Any], path: str, line: int) -> tuple[tuple[Utterance, ...], tuple[str, ...]]:
    context = [values["context"]] if isinstance(values["context"], str) else values["context"]
    if not isinstance(context, list):
        cure = "Expected a text, or a list of turns."
        raise DataError(f"found {abbreviated(context)}", cure, path=path, line=line, field="context")
    if "candidate" in values:
        pair = validated(Pair, {**values, "context": context}, path=path, line=line)
        return pair.context, (pair.candidate,)
    pool = validated(Candidates, {**values, "context": context}, path=path, line=line)
    return pool.context, pool.candidates


def _check_not_alone(name: str, chunk: _Chunk, method: str) -> None:
    for row, pool in zip(chunk.rows, chunk.pools, strict=False):
        if len(pool.candidates) < 2:
            found = f"found one candidate, which alone has no probability by `{method}`"
            raise DataError(found, "Expected two or more in each row.", path=name, line=row + 1, field="candidates")


def _output(name: str, chunk: _Chunk, ranker: LoadedRanker) -> pa.Table:
    if ranker.run.has_softmax:
        _check_not_alone(name, chunk, ranker.run.config.method)
    predictions = unlabelled_predictions(ranker.run, ranker.members, chunk.pools, of_pairs=not chunk.has_pools)
    scores = unlabelled_scores(predictions, chunk.pools)
    rows, candidates = zip(*chunk.positions, strict=True)
    columns = {
        "file": pa.array([name] * len(rows), pa.string()).dictionary_encode(),
        "row": pa.array(rows, pa.int64()),
        "candidate": pa.array(candidates, pa.int32()),
        "view": predictions["view"],
        **{each: predictions[each] for each in ("logit", "prob", "logit_var", "prob_var", "mutual_information")},
    }
    if scores.p_none is not None:
        p_none = scores.p_none[scores.pool] if chunk.has_pools else [None] * len(rows)
        columns[P_NONE] = pa.array(p_none, pa.float64())
    return pa.table(columns)
