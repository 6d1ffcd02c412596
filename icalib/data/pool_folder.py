"""Writing a pool folder: pools as Parquet, in a folder that exists whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from icalib.core.files import content_digest, remove_path, replaced_dir
from icalib.core.seeding import child_seed
from icalib.core.storage import remove
from icalib.data.corpus import Corpus
from icalib.data.mining import Progress, Spill
from icalib.data.pools import INPUTS_KEY, ROW_GROUP, row_digest, split_file
from icalib.data.schema import NONE_RIGHT, POOL_SCHEMA, Split, right_indices
from icalib.data.splits import LeakCheck, label_order


class SplitWriter:
    """Writes a split's pools in row groups of `ROW_GROUP`, by which they are read, and counts what they have."""

    def __init__(self, folder: Path, split: Split, inputs: Mapping[str, Any]) -> None:
        self._schema = POOL_SCHEMA.with_metadata({INPUTS_KEY: json.dumps(inputs)})
        self._path, self._digest = folder / split_file(split), hashlib.sha256()
        self._group: list[dict[str, Any]] = []
        self.num_unanswerable = self.num_several_right = 0
        self._num_right = self._num_answerable = 0

    def __enter__(self) -> Self:
        self._file = pq.ParquetWriter(self._path, self._schema, compression="zstd")
        return self

    def __exit__(self, *error: object) -> None:
        with self._file:
            if error[0] is None and self._group:
                self._flush()

    def add(self, pool: dict[str, Any]) -> None:
        """Write a pool after those before it."""
        right = right_indices(pool["label"], pool["also_right"])
        self.num_unanswerable += pool["label"] == NONE_RIGHT
        self.num_several_right += len(right) > 1
        self._num_right += len(right)
        self._num_answerable += bool(right)
        self._digest.update(row_digest(pool))
        self._group.append(pool)
        if len(self._group) == ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        self._file.write_table(pa.Table.from_pylist(self._group, schema=self._schema))
        self._group = []

    @property
    def digest(self) -> str:
        """Digest of the pools."""
        return self._digest.hexdigest()

    @property
    def mean_right(self) -> float:
        """Mean number of right candidates of the pools that have any; 0 unless some have several."""
        return self._num_right / self._num_answerable if self.num_several_right else 0.0


def described(splits: Mapping[Split, SplitWriter]) -> dict[str, Any]:
    """Return the fields of `PoolSet` that follow from the pools of all splits; counts and means are those above 0."""
    found: dict[str, Any] = {"digest": content_digest({split: one.digest for split, one in splits.items()})}
    for name in ("num_unanswerable", "num_several_right", "mean_right"):
        found[name] = {split: value for split, one in splits.items() if (value := getattr(one, name))}
    return found


class PoolWriter:
    """Turns spilled rows into shuffled pools in Parquet, one file a split, with `inputs` in its metadata."""

    def __init__(self, folder: Path, seed: int, inputs: dict[str, Any]) -> None:
        self.folder, self.seed = folder, seed
        self.leaks = LeakCheck()
        self.inputs, self.num_candidates = inputs, 0
        self.splits: dict[Split, SplitWriter] = {}

    def write(
        self,
        split: Split,
        corpus: Corpus,
        negatives: NDArray[np.int64] | None,
        progress: Progress,
        unanswerable: float = 0.0,
    ) -> None:
        """Write a split; `negatives` are rows of wrong candidates [num_rows, C − 1], None: the rows have them.

        `unanswerable` is the fraction of pools whose right candidate is replaced by one more of the negatives.
        """
        spill, order = corpus.spills[split], None
        loses_right = _drawn(spill, unanswerable, self.seed) if unanswerable else None
        if split == "train":
            order = label_order(corpus.has_intents, corpus.label_known, self.seed)
        with SplitWriter(self.folder, split, self.inputs) as writer:
            for number, row in enumerate(spill.rows()):
                response = row["candidates"][:1]  # copies are counted by it, also where it is taken out
                wrong = [] if negatives is None else [spill.response(other) for other in negatives[number].tolist()]
                if loses_right is None:
                    row["candidates"] += wrong
                elif loses_right[number]:
                    row["candidates"], row["label"] = wrong, NONE_RIGHT
                else:
                    row["candidates"] += wrong[:-1]
                row["label_order"] = -1 if order is None else int(order[number])
                writer.add(self._shuffled(row, response))
                if (number + 1) % ROW_GROUP == 0 or number == spill.num_rows - 1:
                    progress(f"write {split}", number + 1, spill.num_rows)
        self.splits[split] = writer

    def _shuffled(self, row: dict[str, Any], response: list[str]) -> dict[str, Any]:
        """Return the row with its candidates in an order that depends on the seed and the pool's id alone."""
        candidates = row["candidates"]
        self.num_candidates = max(self.num_candidates, len(candidates))
        rng = np.random.default_rng(child_seed(self.seed, "candidates", row["pool_id"]))
        order = rng.permutation(len(candidates)).tolist()
        row["candidates"] = [candidates[index] for index in order]
        row["label"] = order.index(row["label"]) if row["label"] >= 0 else row["label"]
        row["also_right"] = sorted(map(order.index, row["also_right"]))
        texts = [utterance["text"] for utterance in row["context"]]
        self.leaks.add(row["dialog_id"], row["split"], [*texts, *response])
        return row


def _drawn(spill: Spill, fraction: float, seed: int) -> NDArray[np.bool_]:
    """Return which pools lose their right candidate, [num_rows]: a smaller fraction is contained in a larger one."""
    rows = spill.rows(columns=["pool_id"])
    draws = np.fromiter((child_seed(seed, "unanswerable", row["pool_id"]) for row in rows), np.uint64, spill.num_rows)
    drawn = np.zeros(len(draws), dtype=bool)
    drawn[np.argsort(draws, kind="stable")[: round(fraction * len(draws))]] = True
    return drawn


@contextmanager
def replaced_folder(out: Path) -> Generator[Path]:
    """Yield a working folder beside `out` that replaces it if the block succeeds; otherwise like `atomic_write`."""
    with replaced_dir(out) as folder:
        try:
            yield folder
        except OSError as error:
            if error.errno is None:  # as numpy reports a short write
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
            raise
        for leftover in (*folder.glob("*.arrow"), *folder.glob("*.npy")):
            leftover.unlink()
        remove_path(out)
    remove(folder)  # in a store, where workers found the index
