"""Reading tables that icalib wrote, with one error for files that were damaged since."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from icalib.core.files import reading


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a Parquet file.

    Raises:
        DamagedFileError: the file is missing or can't be read.
    """
    with reading(path):
        table = pq.read_table(path, columns=None if columns is None else list(columns))
        table.validate(full=True)  # text that isn't UTF-8 would fail later, where the file's name isn't known
        return table


def map_arrow(path: Path) -> pa.Table:
    """Map an Arrow file into memory.

    Raises:
        DamagedFileError: the file is missing or can't be read.
    """
    with reading(path):
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all()
