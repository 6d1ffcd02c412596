"""Writing a pool folder: pools as Parquet, in a folder that exists whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from icalib.core.files import atomic_write
from icalib.core.seeding import child_seed
from icalib.core.storage import remove
from icalib.data.corpus import Corpus
from icalib.data.mining import Progress, Spill
from icalib.data.pools import INPUTS_KEY, ROW_GROUP, row_digest, split_file
from icalib.data.schema import NONE_RIGHT, POOL_SCHEMA, Split, right_indices
from icalib.data.splits import LeakCheck, label_order


class PoolWriter:
    """Turns spilled rows into shuffled pools in Parquet, one file a split, with `inputs` in its metadata."""

    def __init__(self, folder: Path, seed: int, inputs: dict[str, Any]) -> None:
        self.folder, self.seed = folder, seed
        self.leaks = LeakCheck()
        self.metadata = {INPUTS_KEY: json.dumps(inputs)}
        self.digests: dict[str, str] = {}
        self.num_candidates = 0
        self.num_unanswerable: Counter[str] = Counter()
        self.num_several_right: Counter[str] = Counter()
        self._num_right: Counter[str] = Counter()
        self._num_answerable: Counter[str] = Counter()

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
        schema = POOL_SCHEMA.with_metadata(self.metadata)
        digest = hashlib.sha256()
        group: list[dict[str, Any]] = []
        with pq.ParquetWriter(self.folder / split_file(split), schema, compression="zstd") as writer:
            for number, row in enumerate(spill.rows()):
                wrong = [] if negatives is None else [spill.response(other) for other in negatives[number].tolist()]
                if loses_right is None:
                    row["candidates"] += wrong
                elif loses_right[number]:
                    row["candidates"], row["label"] = wrong, NONE_RIGHT
                else:
                    row["candidates"] += wrong[:-1]
                row["label_order"] = -1 if order is None else int(order[number])
                pool = self._shuffled(row)
                self.num_unanswerable[split] += int(pool["label"] == NONE_RIGHT)
                self.num_several_right[split] += int(bool(pool["also_right"]))
                self._num_right[split] += len(right_indices(pool["label"], pool["also_right"]))
                self._num_answerable[split] += int(pool["label"] >= 0)
                digest.update(row_digest(pool))
                group.append(pool)
                if len(group) == ROW_GROUP or number == spill.num_rows - 1:
                    writer.write_table(pa.Table.from_pylist(group, schema=schema))
                    group = []
                    progress(f"write {split}", number + 1, spill.num_rows)
        self.digests[split] = digest.hexdigest()

    def mean_right(self) -> dict[str, float]:
        """Return `PoolSet.mean_right` of what was written."""
        return {split: self._num_right[split] / self._num_answerable[split] for split in +self.num_several_right}

    def _shuffled(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the row with its candidates in an order that depends on the seed and the pool's id alone."""
        candidates = row["candidates"]
        self.num_candidates = max(self.num_candidates, len(candidates))
        rng = np.random.default_rng(child_seed(self.seed, "candidates", row["pool_id"]))
        order = rng.permutation(len(candidates)).tolist()
        row["candidates"] = [candidates[index] for index in order]
        row["label"] = order.index(row["label"]) if row["label"] >= 0 else row["label"]
        row["also_right"] = sorted(map(order.index, row["also_right"]))
        texts = [utterance["text"] for utterance in row["context"]]
        self.leaks.add(row["dialog_id"], row["split"], [*texts, *candidates[:1]])
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
    with atomic_write(out) as folder:
        folder.mkdir()
        try:
            yield folder
        except OSError as error:
            if error.errno is None:  # as numpy reports a short write
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
            raise
        for leftover in (*folder.glob("*.arrow"), *folder.glob("*.npy")):
            leftover.unlink()
        if out.exists():
            shutil.rmtree(out)
    remove(folder)  # in a store, where workers found the index
