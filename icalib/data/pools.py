"""Reading a pool set: its metadata, batches in order, and single rows."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import ValidationError

from icalib.core.contents import damages, read_record
from icalib.core.errors import DamagedFileError, DataError
from icalib.core.files import reading
from icalib.core.storage import location, pull
from icalib.core.text import short_repr
from icalib.data.schema import POOL_SCHEMA, POOLS_FILE, POOLS_VERSION, Pool, PoolSet, Split, checksum

ROW_GROUP = 256
"""Pools in a Parquet row group: the unit of sharding."""
INPUTS_KEY = b"icalib.inputs"
"""Parquet metadata: the settings and the source's digest, as JSON."""
PREPARE_CURE = "Write it with `icalib prepare SOURCE`."
_AGAIN = "Prepare the source again with --fresh."


def split_file(split: Split) -> str:
    """Return the file name of a split."""
    return f"{split}.parquet"


def read_pool_set(folder: str | Path) -> PoolSet:
    """Read the metadata of a pool folder, local or in an object store, and check its files' digests, once in a process.

    A DataError says that it is no pool folder, has another version, or a file that is missing or damaged.
    """
    folder = Path(folder)
    pull(folder)
    path = folder / POOLS_FILE
    if not path.is_file():
        raise DataError(f"not a pool folder (it has no {POOLS_FILE})", PREPARE_CURE, path=location(folder))
    try:
        value = read_record(path)
        version = value["version"]
        if version != POOLS_VERSION:
            raise DataError(
                f"version {version} of the pool format; this icalib reads version {POOLS_VERSION}",
                "Prepare the source again with --fresh, or use the icalib that wrote it.",
                path=path,
                field="version",
            )
        pool_set = PoolSet.model_validate(value)
        with reading(path):
            damage = next(damages(folder, pool_set.files), None)
    except DamagedFileError as error:
        raise _damaged(path, error.found) from error
    except ValidationError as error:
        raise _damaged(path, f"invalid metadata: {' '.join(str(error).split())}") from error
    if pool_set.checksum != checksum(value):
        raise _damaged(path, "other metadata than was written")
    if damage is not None:
        raise _damaged(Path(damage.path), damage.found)
    return pool_set


def prepared_inputs(folder: str | Path) -> dict[str, Any]:
    """Return the settings and the source's digest that a pool folder was prepared from."""
    with _opened(folder, "train") as file, reading(Path(folder) / split_file("train")):
        return cast("dict[str, Any]", json.loads(file.schema_arrow.metadata[INPUTS_KEY]))


def iter_pools(
    folder: str | Path,
    split: Split,
    columns: Sequence[str] | None = None,
    batch_size: int = ROW_GROUP,
    groups: Sequence[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield a split in order, in batches of at most `batch_size` pools with the columns of its schema.

    With `groups`, only these row groups are read.
    """
    with _opened(folder, split) as file:
        wanted = range(file.num_row_groups) if groups is None else groups
        yield from file.iter_batches(batch_size, list(wanted), columns=list(columns) if columns else None)


def read_rows(
    folder: str | Path, split: Split, rows: Sequence[int] | NDArray[np.int64], columns: Sequence[str] | None = None
) -> pa.Table:
    """Return some pools of a split, in the order of `rows`; only the row groups that hold them are read."""
    wanted = np.asarray(rows, dtype=np.int64)
    groups = np.unique(wanted // ROW_GROUP)
    with _opened(folder, split) as file:
        table = file.read_row_groups(groups.tolist(), columns=list(columns) if columns else None)
    indices = np.searchsorted(groups, wanted // ROW_GROUP) * ROW_GROUP + wanted % ROW_GROUP
    return table.take(pa.array(indices))


def read_column(folder: str | Path, split: Split, name: str) -> NDArray[Any]:
    """Return a column of numbers of a split, e.g. label_order."""
    columns = (batch[name].to_numpy() for batch in iter_pools(folder, split, [name]))
    return np.concatenate([np.zeros(0, np.int64), *columns])  # a split may have no pools


def as_pools(table: pa.Table | pa.RecordBatch) -> Iterator[Pool]:
    """Yield complete rows of a pool set as `Pool`s; a DataError if one was changed after `read_pool_set`."""
    for row in table.to_pylist():
        try:
            yield Pool.model_validate(row)
        except ValidationError as error:
            raise DataError(f"damaged ({short_repr(row)} is not a valid pool)", _AGAIN) from error


def row_digest(row: dict[str, Any]) -> bytes:
    """Return a pool as bytes for the set's digest: JSON in `POOL_SCHEMA`'s order, `also_right` where it has any."""
    fields = [row[name] for name in POOL_SCHEMA.names]
    return json.dumps(fields if row["also_right"] else fields[:-1], ensure_ascii=False, sort_keys=True).encode()


@contextmanager
def _opened(folder: str | Path, split: Split) -> Generator[pq.ParquetFile]:
    path = Path(folder) / split_file(split)
    if not path.is_file():
        raise DataError("a file of the pool set is missing", PREPARE_CURE, path=path)
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, str(error)) from error


def _damaged(path: Path, reason: str) -> DataError:
    return DataError(f"damaged ({reason})", _AGAIN, path=path)
