"""Pools on disk between the passes of `prepare`: written once, then read in order or at random, never held whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from icalib.data.schema import POOL_SCHEMA

BATCH_ROWS = 1024


class Spill:
    """Rows of pools in an Arrow file, in batches of exactly `BATCH_ROWS` (the last may be shorter)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.num_rows = 0
        self._pending: list[dict[str, Any]] = []
        self._writer = pa.ipc.new_file(path, POOL_SCHEMA)
        self._batches: list[pa.RecordBatch] = []
        self._candidates: list[pa.ListArray] = []

    def append(self, row: dict[str, Any]) -> None:
        """Add a row."""
        self._pending.append(row)
        self.num_rows += 1
        if len(self._pending) == BATCH_ROWS:
            self._flush()

    def close(self) -> None:
        """End writing and open the file for reading."""
        if self._pending:
            self._flush()
        self._writer.close()
        reader = pa.ipc.open_file(pa.memory_map(str(self.path)))
        self._batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        self._candidates = [batch.column("candidates") for batch in self._batches]

    def rows(self, columns: list[str] | None = None) -> Iterator[Any]:
        """Yield all rows in order, as dictionaries."""
        for batch in self._batches:
            yield from (batch.select(columns) if columns else batch).to_pylist()

    def response(self, row: int) -> str:
        """Return the first candidate of a row."""
        number, index = divmod(row, BATCH_ROWS)
        return cast("str", self._candidates[number][index][0].as_py())

    def _flush(self) -> None:
        self._writer.write_batch(pa.RecordBatch.from_pylist(self._pending, schema=POOL_SCHEMA))
        self._pending = []
