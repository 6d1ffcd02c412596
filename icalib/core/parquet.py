"""Tables in files: written whole or not at all, and read with one error for those that were damaged since."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from icalib.core.errors import DamagedFileError
from icalib.core.files import atomic_write, reading


def read_parquet(path: Path, columns: Sequence[str] | None = None, *, schema: pa.Schema | None = None) -> pa.Table:
    """Read some or all columns of a Parquet file, which must have those of `schema`, or raise a DamagedFileError."""
    with reading(path):
        table = pq.read_table(path, columns=None if columns is None else list(columns))
        table.validate(full=True)  # text that isn't UTF-8 would fail later, where the file's name isn't known
    for field in schema if schema is not None else ():
        if field.name not in table.column_names:
            raise DamagedFileError(path, f"has no column `{field.name}`")
        if table.schema.field(field.name).type != field.type:
            found = table.schema.field(field.name).type
            raise DamagedFileError(path, f"has {found} in the column `{field.name}` instead of {field.type}")
    return table


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write a Parquet file, atomically."""
    with atomic_write(path) as temporary:
        pq.write_table(table, temporary)


def map_arrow(path: Path) -> pa.Table:
    """Map an Arrow file into memory, or raise a DamagedFileError."""
    with reading(path):
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all()
