"""Values and texts that no one would write on purpose, for properties of parsers."""

from __future__ import annotations

import copy
import io
import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

TYPES = (pa.string(), pa.large_string(), pa.binary(), pa.int8(), pa.float16(), pa.null(), pa.bool_())
KEYS = ("", ".", "a.b", "target", "__class__", "model_config", "seed", "id", "\ud800", "x" * 300, "\x1b[31m")
LEAVES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**63, -(2**63), 10**400, 0.5, -0.0, float("nan"), float("inf"), 1e308, "", " ", "\0",
    "x" * 5000, "\ud800", "nan", "1", "2020-01-01", "mc-dropout", "os.path", "../x", "this.that", [], [[]], {},
    {"": {}}, [None], {"target": "os.path"}, {"target": []}, [1, "a", None], "icalib.heads.linear.LinearHead",
)  # fmt: skip
YAML_TEXTS = st.one_of(
    st.sampled_from([
        "{a: ", "[1, 2]", "[" * 3000, "{a: " * 2000, "!!int ''", "!!bool x", "!!float x", "!!timestamp x",
        "!!binary '='", "!!set {a, b}", "!!python/object/apply:os.system [ls]", "&a [*a]", "&a {b: *a}", "*a",
        "2020-13-45", "2020-01-01", "1" * 5000, "? {a: 1}\n: 2", "1: 2", "=", "<<: 3", "\0", "\ud800", "---\n---\n",
        "%YAML 9.9", "a: &x [1]\nb: &y [*x, *x]\nc: [*y, *y]",
    ]),
    st.text(alphabet=" \n:-[]{}&*!|>'\"%@`,?#=.~<0159aefoxntu_", max_size=30),
    st.text(max_size=30),
)  # fmt: skip


def changed_value(value: Any, rng: random.Random) -> Any:
    """Return a copy of a value with one to three of its members replaced, added or left out."""
    value = copy.deepcopy(value)
    for _ in range(rng.randint(1, 3)):
        whole = value
        while isinstance(whole, dict | list) and whole:
            key: Any = rng.choice(sorted(whole, key=str) if isinstance(whole, dict) else range(len(whole)))
            if isinstance(whole[key], dict | list) and whole[key] and rng.random() < 0.7:
                whole = whole[key]
                continue
            new = copy.deepcopy(rng.choice((*LEAVES, *(whole.values() if isinstance(whole, dict) else whole))))
            action = rng.choice(("remove", "replace", "add"))
            if action == "remove":
                del whole[key]
            elif action == "replace":
                whole[key] = new
            elif isinstance(whole, dict):
                whole[rng.choice((*KEYS, *whole))] = new
            else:
                whole.append(new)
            break
    return value


def changed_parquet(data: bytes, rng: random.Random) -> bytes | None:
    """Return a Parquet file with another type of a column, without it, or with other values; None: it isn't a table."""
    table = pq.read_table(io.BytesIO(data))
    index, action = rng.randrange(table.num_columns), rng.randrange(4)
    name = table.column_names[index]
    try:
        if action == 0:
            table = table.drop_columns([name])
        elif action == 1:
            table = table.set_column(index, name, table[name].cast(rng.choice(TYPES)))
        else:
            values = changed_value(table[name].to_pylist(), rng)
            table = table.set_column(index, name, pa.array((values * table.num_rows)[: table.num_rows]))
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
    except (pa.ArrowException, UnicodeEncodeError, OverflowError, TypeError):
        return None
    return sink.getvalue().to_pybytes()
