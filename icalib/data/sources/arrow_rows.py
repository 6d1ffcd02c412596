"""Rows of Parquet and Arrow files, in batches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from icalib.core.errors import DataError
from icalib.data.sources.records import Raw

BATCH_ROWS = 256
PARQUET_MAGIC = b"PAR1"
ARROW_FILE_MAGIC = b"ARROW1"
ARROW_STREAM_MAGIC = b"\xff\xff\xff\xff"
"""How a stream of Arrow batches begins: what the datasets library saves."""


def arrow_rows(path: Path) -> Iterator[Raw]:
    """Yield the rows of a Parquet file, an Arrow file or an Arrow stream; `Raw.value` is a dictionary.

    Raises:
        DataError: a damaged file. (`Raw.line` is the row's number.)
    """
    number = 0
    try:
        for batch in _batches(path):
            for start in range(0, batch.num_rows, BATCH_ROWS):
                for row in batch.slice(start, BATCH_ROWS).to_pylist():
                    number += 1
                    value = {name: _plain(field) for name, field in row.items()}
                    yield Raw(path, number, json.dumps(value, default=str), value)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise DataError(
            f"damaged ({error})", "Get the file again, or write it again.", path=path, line=number
        ) from error


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    with path.open("rb") as file:
        magic = file.read(len(ARROW_FILE_MAGIC))
    if magic.startswith(PARQUET_MAGIC):
        with pq.ParquetFile(path) as parquet:
            yield from parquet.iter_batches(batch_size=BATCH_ROWS)
    elif magic == ARROW_FILE_MAGIC:
        with pa.memory_map(str(path)) as file, pa.ipc.open_file(file) as reader:
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index)
    else:
        with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as reader:
            yield from reader


def _plain(value: Any) -> Any:
    """Return times as text, as JSON and CSV have them."""
    return value.isoformat() if isinstance(value, datetime | date) else value
