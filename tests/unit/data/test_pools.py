"""Rows of pool files that were changed while they were read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from icalib.core.errors import DataError
from icalib.data.pools import as_pools, iter_pools


@pytest.mark.parametrize("change", [{"label": None}, {"split": "later"}, {"context": None}])
def test_rows_that_are_not_pools_are_data_errors(tiny_pools: Path, change: dict[str, Any]) -> None:
    row = next(iter_pools(tiny_pools, "test")).slice(0, 1).to_pylist()[0]
    assert len(list(as_pools(pa.Table.from_pylist([row])))) == 1
    with pytest.raises(DataError, match=r"is not a valid pool.*--fresh"):
        list(as_pools(pa.Table.from_pylist([{**row, **change}])))
