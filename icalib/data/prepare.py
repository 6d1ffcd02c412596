"""From a source to a pool set: read, split, mine negatives, shuffle candidates, order labels, write Parquet.

Nothing is held whole but the dialogue ids: pools are spilled to Arrow files, negatives are mined over blocks of at
most `mining_block` responses, and the result goes out in row groups. The folder appears when it is complete.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from array import array
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from icalib import __version__
from icalib.core.errors import DataError, SettingError, StorageError
from icalib.core.files import content_digest, write_json
from icalib.core.locks import FileLock
from icalib.core.seeding import child_seed
from icalib.core.storage import location, pull, push, remove
from icalib.data.contexts import context_responses
from icalib.data.negatives import (
    SAMPLERS,
    NegativeSampler,
    ParallelMap,
    mine_block,
    query_blocks,
    write_index,
)
from icalib.data.pools import INPUTS_KEY, ROW_GROUP, prepared_inputs, read_pool_set, row_digest, split_file
from icalib.data.schema import POOL_SCHEMA, POOLS_FILE, POOLS_VERSION, SPLITS, PoolSet, Split
from icalib.data.sources.base import OnReject, Source
from icalib.data.sources.detect import open_source
from icalib.data.spill import Spill
from icalib.data.splits import LeakCheck, label_order, split_of

Progress = Callable[[str, int, int | None], None]
"""progress(stage, done, total): total is None while it isn't known."""
Note = Callable[[str], None]
"""note(text): something that the user should know and that stops nothing."""

DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EROFS, None)
"""None: numpy reports a short write without a number."""


class Settings(NamedTuple):
    """What a pool set depends on besides its source."""

    num_candidates: int
    negative_sampler: NegativeSampler
    context_turns: int
    min_context: int
    labelled: float | None
    seed: int
    limit: int | None
    mining_block: int


def prepare(
    source_path: str | Path,
    out: str | Path,
    *,
    format: str | None = None,
    num_candidates: int = 10,
    negative_sampler: NegativeSampler = "bm25",
    context_turns: int = 4,
    min_context: int = 2,
    labelled: float | None = None,
    seed: int = 7,
    skip_bad: bool = False,
    limit: int | None = None,
    mining_block: int = 200_000,
    fresh: bool = False,
    parallel_map: ParallelMap = map,
    progress: Progress = lambda stage, done, total: None,
    note: Note = lambda text: None,
) -> PoolSet:
    """Write a source's pools to the folder `out`.

    A source that holds ready pools keeps their candidates; the order of candidates is always shuffled by seed, so a
    position says nothing. The same inputs again return the folder that is there.

    Args:
        source_path: a file or folder that `open_source` can read.
        out: the pool folder; made complete or not at all.
        format: the source's form; None tells it by content.
        num_candidates: C, the right response and C − 1 negatives.
        negative_sampler: `bm25` or `random`.
        context_turns: utterances of context at most.
        min_context: utterances before a response at least.
        labelled: default labelled fraction of the set; None: the share of training pools with intents, where only
            some have them.
        seed: of splits, negatives, shuffling and label order.
        skip_bad: leave bad records out and write them to `<out>.rejected.jsonl`.
        limit: at most so many pools a split (the first).
        mining_block: responses in one BM25 index at most; larger splits are mined block by block.
        fresh: replace a pool folder of other inputs; a folder of something else is never touched.
        parallel_map: runs the mining tasks; gets `mine_block` and the blocks, gives the results in order.
        progress: hears of the stages `read`, `mine <split>` and `write <split>`.
        note: hears what is odd but no error.

    Raises:
        SettingError: a setting out of range, or `out` holds something else.
        DataError: a bad record (without `skip_bad`), a dialogue in two splits, too few responses for the candidates.
        StorageError: the disk refused.
    """
    source_path, out = Path(source_path), Path(out)
    settings = Settings(
        num_candidates, negative_sampler, context_turns, min_context, labelled, seed, limit, mining_block
    )
    check_settings(settings)
    pull(source_path)
    pull(out)
    source = open_source(source_path, format)
    source_digest = source.digest()
    inputs = {"version": POOLS_VERSION, "source_digest": source_digest, "skip_bad": skip_bad, **settings._asdict()}
    if out.exists() and not (out / POOLS_FILE).is_file():
        raise SettingError(f"{out} is there and is no pool folder. Choose another name, or remove it yourself.")
    if out.exists() and not fresh:
        pool_set = _existing(out, inputs, note)
        push(out)  # where the last time ended before all was there
        return pool_set
    with _folder_in_place(out) as folder:
        rejected = _Rejected(folder / "rejected.jsonl") if skip_bad else None
        corpus = _read(source, folder, settings, rejected, progress)
        _note_empty_splits(corpus, note)
        leaks = LeakCheck()
        writer = _Writer(folder, settings, inputs, leaks)
        for split in SPLITS:
            spill = corpus.spills[split]
            needs_negatives = split in corpus.mined
            negatives = _mine(spill, folder, split, settings, parallel_map, progress) if needs_negatives else None
            writer.write(split, spill, negatives, corpus, progress)
        if copies := leaks.num_copies_across_splits():
            note(f"{copies} (context, response) texts of validation or test stand word for word in another split")
        pool_set = PoolSet(
            version=POOLS_VERSION,
            name=out.name,
            digest=content_digest(writer.digests),
            source=location(source_path),
            source_digest=source_digest,
            negative_sampler=negative_sampler if corpus.mined else "source",
            num_candidates=writer.num_candidates,
            context_turns=context_turns,
            seed=seed,
            default_labelled_fraction=labelled if labelled is not None else corpus.share_with_intents(),
            intents=tuple(sorted(corpus.intents)),
            num_pools={split: corpus.spills[split].num_rows for split in SPLITS},
            num_dialogues=leaks.num_dialogues(),
            num_rejected=rejected.count if rejected else 0,
            created_with=f"icalib {__version__}",
        )
        if rejected:
            rejected.move_beside(out, note)
        write_json(folder / POOLS_FILE, pool_set.model_dump())
    push(_rejected_path(out))
    push(out)
    return pool_set


def check_settings(settings: Settings) -> None:
    """Refuse settings out of their range.

    Raises:
        SettingError: with the setting's name and range.
    """
    at_least = {"num_candidates": 2, "context_turns": 1, "min_context": 1, "mining_block": 2, "limit": 1}
    for name, smallest in at_least.items():
        value = getattr(settings, name)
        if value is not None and value < smallest:
            raise SettingError(f"{name} is {value}. Give {smallest} or more.")
    if settings.negative_sampler not in SAMPLERS:
        raise SettingError(
            f'negative_sampler "{settings.negative_sampler}" is unknown. Choose one of: {", ".join(SAMPLERS)}.'
        )
    if settings.labelled is not None and not 0 < settings.labelled <= 1:
        raise SettingError(f"labelled is {settings.labelled}. Give a fraction above 0 and at most 1.")


class _Corpus:
    """What the reading pass leaves: one spill a split and a few facts of its pools."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.spills = {split: Spill(folder / f"{split}.arrow") for split in SPLITS}
        self.mined: set[Split] = set()
        """Splits whose rows hold the right response alone."""
        self.intents: set[str] = set()
        self.has_intents = array("b")
        """Of the training pools, as is `label_known`."""
        self.label_known = array("b")
        self._limit = settings.limit

    def is_full(self, split: Split) -> bool:
        return self._limit is not None and self.spills[split].num_rows >= self._limit

    def all_full(self) -> bool:
        return all(map(self.is_full, SPLITS))

    def add(self, row: dict[str, Any]) -> None:
        split: Split = row["split"]
        if self.is_full(split):
            return
        names = {name for utterance in row["context"] for name in utterance["intents"]}
        self.intents |= names
        if split == "train":
            self.has_intents.append(bool(names))
            self.label_known.append(row["label"] >= 0)
        self.spills[split].append(row)

    def share_with_intents(self) -> float | None:
        """Share of training pools with intents; None where all or none have them."""
        share = sum(self.has_intents) / max(1, len(self.has_intents))
        return share if 0 < share < 1 else None


class _Rejected:
    """The records that were left out, one JSON object a line."""

    def __init__(self, path: Path) -> None:
        self.path, self.count = path, 0

    def __call__(self, error: DataError, raw: str) -> None:
        self.count += 1
        line = {"path": error.path, "line": error.line, "field": error.field, "reason": error.found, "raw": raw}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def move_beside(self, out: Path, note: Note) -> None:
        target = _rejected_path(out)
        if self.count:
            os.replace(self.path, target)
            note(f"{self.count} records were left out; see {target}")
        else:
            target.unlink(missing_ok=True)


def _rejected_path(out: Path) -> Path:
    return out.with_name(f"{out.name}.rejected.jsonl")


def _read(source: Source, folder: Path, settings: Settings, on_reject: OnReject | None, progress: Progress) -> _Corpus:
    corpus = _Corpus(folder, settings)
    for done, rows in enumerate(_records(source, corpus, settings, on_reject), 1):
        for row in rows:
            corpus.add(row)
        if done % 1000 == 0:
            progress("read", done, None)
        if corpus.all_full():
            break
    for spill in corpus.spills.values():
        spill.close()
    num_pools = sum(spill.num_rows for spill in corpus.spills.values())
    progress("read", num_pools, num_pools)
    if not num_pools:
        raise DataError(
            "no pool came out of it",
            f"A response needs {settings.min_context} utterances before it, one of them by the user; "
            "two-turn dialogues need --min-context 1.",
            path=source.files[0],
        )
    return corpus


def _records(
    source: Source, corpus: _Corpus, settings: Settings, on_reject: OnReject | None
) -> Iterator[list[dict[str, Any]]]:
    """Rows by record; a dialogue's rows have the right response as their only candidate."""
    for dialogue in source.dialogues(on_reject):
        split = split_of(dialogue, settings.seed)
        corpus.mined.add(split)
        pairs = context_responses(
            dialogue,
            context_turns=settings.context_turns,
            min_context=settings.min_context,
            last_turn_only=source.last_turn_only,
        )
        yield [
            {
                "pool_id": f"{dialogue.dialog_id}#{pair.turn}",
                "dialog_id": dialogue.dialog_id,
                "domain": dialogue.domain,
                "split": split,
                "context": [utterance.model_dump() for utterance in pair.context],
                "candidates": [pair.response.text],
                "label": 0,
                "label_order": -1,
            }
            for pair in pairs
        ]
    for pool in source.pools(on_reject):
        row = pool.row()
        yield [{**row, "context": row["context"][-settings.context_turns :]}]


def _note_empty_splits(corpus: _Corpus, note: Note) -> None:
    for split in SPLITS:
        if not corpus.spills[split].num_rows:
            note(f"there are no {split} pools")


def _mine(
    spill: Spill, folder: Path, split: Split, settings: Settings, parallel_map: ParallelMap, progress: Progress
) -> NDArray[np.int64] | None:
    """Rows of the negatives, [num_rows, C − 1], on disk."""
    if not spill.num_rows:
        return None
    if spill.num_rows < settings.num_candidates:
        raise DataError(
            f"the {split} split has {spill.num_rows} responses, fewer than the {settings.num_candidates} candidates "
            "of a pool",
            "Prepare more dialogues, or fewer candidates with --num-candidates.",
        )
    num_negatives = settings.num_candidates - 1
    path = folder / f"{split}_negatives.npy"
    shape = (spill.num_rows, num_negatives)
    negatives = np.lib.format.open_memmap(path, mode="w+", dtype=np.int64, shape=shape)
    for start, stop in _mining_blocks(spill.num_rows, settings.mining_block):
        index = folder / f"{split}_index_{start}"
        responses = (row["candidates"][0] for row in spill.rows(start, stop, ["candidates"]))
        write_index(index, responses, _dialogue_numbers(spill, start, stop), settings.negative_sampler)
        push(index)
        blocks = query_blocks(
            index,
            stop - start,
            sampler=settings.negative_sampler,
            num_negatives=num_negatives,
            seed=child_seed(settings.seed, "negatives", split, start),
        )
        for block, rows in zip(blocks, parallel_map(mine_block, blocks), strict=True):
            negatives[start + block.start : start + block.stop] = rows + start
            progress(f"mine {split}", start + block.stop, spill.num_rows)
        remove(index)
    return negatives


def _mining_blocks(num_rows: int, mining_block: int) -> list[tuple[int, int]]:
    """Blocks of at most `mining_block` rows, as even as can be."""
    num_blocks = -(-num_rows // mining_block)
    edges = [num_rows * number // num_blocks for number in range(num_blocks + 1)]
    return list(pairwise(edges))


def _dialogue_numbers(spill: Spill, start: int, stop: int) -> Iterator[int]:
    """A number for each row that tells its dialogue; a dialogue's rows follow one another."""
    number, last = -1, None
    for row in spill.rows(start, stop, ["dialog_id"]):
        if row["dialog_id"] != last:
            number, last = number + 1, row["dialog_id"]
        yield number


class _Writer:
    """Turns spilled rows into shuffled pools in Parquet."""

    def __init__(self, folder: Path, settings: Settings, inputs: dict[str, Any], leaks: LeakCheck) -> None:
        self.folder, self.settings, self.leaks = folder, settings, leaks
        self.schema = POOL_SCHEMA.with_metadata({INPUTS_KEY: json.dumps(inputs)})
        self.digests: dict[str, str] = {}
        self.num_candidates = 0

    def write(
        self, split: Split, spill: Spill, negatives: NDArray[np.int64] | None, corpus: _Corpus, progress: Progress
    ) -> None:
        order = None
        if split == "train":
            order = label_order(corpus.has_intents, corpus.label_known, self.settings.seed)
        digest = hashlib.sha256()
        group: list[dict[str, Any]] = []
        with pq.ParquetWriter(self.folder / split_file(split), self.schema, compression="zstd") as writer:
            for number, row in enumerate(spill.rows()):
                wrong = [] if negatives is None else [spill.response(other) for other in negatives[number].tolist()]
                row["candidates"] += wrong
                row["label_order"] = -1 if order is None else int(order[number])
                pool = self._shuffled(row)
                digest.update(row_digest(pool))
                group.append(pool)
                if len(group) == ROW_GROUP or number == spill.num_rows - 1:
                    writer.write_table(pa.Table.from_pylist(group, schema=self.schema))
                    group = []
                    progress(f"write {split}", number + 1, spill.num_rows)
        self.digests[split] = digest.hexdigest()

    def _shuffled(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row with its candidates in an order that the seed and the pool's id decide."""
        candidates = row["candidates"]
        self.num_candidates = max(self.num_candidates, len(candidates))
        rng = np.random.default_rng(child_seed(self.settings.seed, "candidates", row["pool_id"]))
        order = rng.permutation(len(candidates)).tolist()
        row["candidates"] = [candidates[place] for place in order]
        row["label"] = order.index(row["label"]) if row["label"] >= 0 else -1
        texts = [utterance["text"] for utterance in row["context"]]
        self.leaks.see(row["dialog_id"], row["split"], [*texts, *candidates[:1]])
        return row


def _existing(out: Path, inputs: dict[str, Any], note: Note) -> PoolSet:
    try:
        pool_set = read_pool_set(out)
    except DataError as error:
        raise SettingError(f"{error} Add --fresh to replace it.") from error
    earlier = prepared_inputs(out)
    if earlier != inputs:
        changed = ", ".join(sorted(name for name in inputs if earlier.get(name) != inputs[name]))
        raise SettingError(
            f"{out} was prepared from other inputs ({changed}). Choose another folder, or add --fresh to replace it."
        )
    note(f"{out} is there already, from the same inputs; nothing to do")
    return pool_set


@contextmanager
def _folder_in_place(out: Path) -> Generator[Path]:
    """A working folder beside `out`, renamed into its place when the block ends well and removed when it doesn't.

    What a killed process left in it goes first.
    """
    folder = out.with_name(f".{out.name}.tmp")
    try:
        with _claimed(folder):
            for leftover in folder.iterdir():
                shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
            yield folder
            for leftover in (*folder.glob("*.arrow"), *folder.glob("*.npy")):
                leftover.unlink()
            if out.exists():
                shutil.rmtree(out)
            os.replace(folder, out)
            remove(folder)  # in a store, where workers found the index
    except OSError as error:
        if error.errno in DISK_ERRORS:
            raise StorageError(
                f"can't write {out}: {error.strerror or error}. Nothing half-written is left; free some space or "
                "choose another folder, then give the same command again."
            ) from error
        raise


@contextmanager
def _claimed(folder: Path) -> Generator[None]:
    """A folder that no other process works in; it is gone when the block ends, wherever that was.

    The claim is a lock on the folder, which the system lets go of when the process dies.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder)
    if not lock.acquire(wait=False):
        raise SettingError(
            f"another `icalib prepare` is at work in {folder}. Wait until it ends, or choose another --out."
        )
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.release()
