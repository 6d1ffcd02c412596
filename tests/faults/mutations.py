"""Seeded changes of valid input: of its bytes, and of the values that it stands for."""

from __future__ import annotations

import copy
import io
import json
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

TOKENS = (
    b"\0", b"\xff\xfe", b"\xed\xa0\x80", b'"', b"'", b"{", b"}", b"[", b"]", b":", b",", b"\t", b"\r\n", b"\n\n", b"\\",
    b"\\u0000", b"\\ud800", b"NaN", b"-Infinity", b"1e999", b"9" * 400, b"-1", b"null", b"true", b"{}", b"[]", b'""',
    b"&a [*a]", b"!!int x", b"\x1b[31m", b"../../x", b"\xe2\x80\xae", b"\xef\xbb\xbf", b" " * 300, b"(" * 1200,
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**63, -(2**63), 10**400, 0.5, -0.0, float("nan"), float("inf"), 1e308, "", " ", "\0",
    "x" * 5000, "\ud800", "\u202e", "nan", "1", "-1", "2020-01-01", "os.path", "../x", "a.b", [], [[]], {}, {"": {}},
    [None], {"target": "os.path"}, {"target": []}, [1, "a", None], "icalib.heads.linear.LinearHead", "linear",
)  # fmt: skip
KEYS = ("", ".", "a.b", "target", "__class__", "model_config", "version", "id", "\ud800", "x" * 300, "\x1b[31m")


def changed_bytes(data: bytes, rng: random.Random) -> bytes:
    """Return one to four changes of bytes."""
    for _ in range(rng.randint(1, 4)):
        data = rng.choice(_BYTE_CHANGES)(data, rng)
    return data


def changed_value(value: Any, rng: random.Random) -> Any:
    """Return a copy of a value with one to three of its parts replaced, added, repeated or left out."""
    value = copy.deepcopy(value)
    for _ in range(rng.randint(1, 3)):
        whole = value
        while isinstance(whole, dict | list) and whole:
            key: Any = rng.choice(sorted(whole, key=str) if isinstance(whole, dict) else range(len(whole)))
            if isinstance(whole[key], dict | list) and whole[key] and rng.random() < 0.7:
                whole = whole[key]
                continue
            _change_part(whole, key, rng)
            break
    return value


def changed_json(text: bytes, rng: random.Random) -> bytes:
    """Return a change of the value in a JSON text, or in one of its lines."""
    try:
        return json.dumps(changed_value(json.loads(text), rng)).encode()
    except ValueError:
        lines = text.splitlines()
        chosen = rng.randrange(len(lines))
        lines[chosen] = json.dumps(changed_value(json.loads(lines[chosen]), rng)).encode()
        return b"\n".join(lines) + b"\n"


def changed_yaml(text: bytes, rng: random.Random) -> bytes:
    """Return a change of the value in a YAML text."""
    return yaml.safe_dump(changed_value(yaml.safe_load(text), rng)).encode("utf-8", "surrogatepass")


def changed_cells(text: bytes, rng: random.Random) -> bytes:
    """Return lines of tab- or comma-separated cells with cells and lines replaced, repeated, swapped or left out."""
    lines = text.split(b"\n")
    for _ in range(rng.randint(1, 3)):
        chosen = rng.randrange(len(lines))
        separator = b"\t" if b"\t" in text else b"," if b"," in text else b" "
        cells = lines[chosen].split(separator)
        cell = rng.randrange(len(cells))
        action = rng.randrange(5)
        if action == 0:
            cells[cell] = rng.choice(TOKENS)
        elif action == 1:
            del cells[cell]
        elif action == 2:
            cells.insert(cell, rng.choice(cells))
        elif action == 3:
            lines.insert(rng.randrange(len(lines)), lines[chosen])
        else:
            lines[rng.randrange(len(lines))] = b""
        lines[chosen] = separator.join(cells)
    return b"\n".join(lines)


def changed_parquet(data: bytes, rng: random.Random) -> bytes:
    """Return a Parquet file with another type of a column, without it, or with other values in its cells."""
    table = pq.read_table(io.BytesIO(data))
    index = rng.randrange(table.num_columns)
    name, action = table.column_names[index], rng.randrange(4)
    try:
        if action == 0:
            table = table.drop_columns([name])
        elif action == 1:
            kind = rng.choice(
                (pa.string(), pa.large_string(), pa.binary(), pa.int8(), pa.float16(), pa.null(), pa.bool_())
            )
            table = table.set_column(index, name, table[name].cast(kind))
        else:
            values = changed_value(table[name].to_pylist(), rng)
            table = table.set_column(index, name, pa.array((values * table.num_rows)[: table.num_rows]))
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
    except (pa.ArrowException, UnicodeEncodeError, OverflowError, TypeError):  # not a table
        return changed_bytes(data, rng)
    return sink.getvalue().to_pybytes()


def changed_file(name: str, data: bytes, rng: random.Random) -> bytes:
    """Return a change that suits the kind of a file: of its bytes or, half of the time, of its values."""
    change = _VALUE_CHANGES.get(name.rpartition(".")[2])
    if change is None or rng.random() < 0.5:
        return changed_bytes(data, rng)
    return change(data, rng)


def _change_part(whole: Any, key: Any, rng: random.Random) -> None:
    action = rng.randrange(4)
    if action == 0:
        del whole[key]
    elif action == 1:
        whole[key] = copy.deepcopy(rng.choice(VALUES))
    elif isinstance(whole, dict):
        whole[rng.choice((*KEYS, *whole))] = copy.deepcopy(rng.choice((*VALUES, *whole.values())))
    elif action == 2:
        whole.append(copy.deepcopy(rng.choice((*VALUES, *whole))))
    else:
        whole[key] = whole[rng.randrange(len(whole))]


def _flip(data: bytes, rng: random.Random) -> bytes:
    if not data:
        return b"\x01"
    changed, place = bytearray(data), rng.randrange(len(data))
    changed[place] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _leave_out(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[:start] + data[start + rng.randint(1, 40) :]


def _insert(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[:start] + (rng.choice(TOKENS) if rng.random() < 0.8 else rng.randbytes(8)) + data[start:]


def _repeat(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[: start + rng.randint(1, 60)] + data[start:]


def _zero(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data) + 1)
    length = min(rng.choice((4, 64, 512)), len(data) - start)
    return data[:start] + bytes(length) + data[start + length :]


_BYTE_CHANGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (_flip, _cut, _leave_out, _insert, _repeat, _zero)
_VALUE_CHANGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "json": changed_json,
    "jsonl": changed_json,
    "yaml": changed_yaml,
    "tsv": changed_cells,
    "csv": changed_cells,
    "txt": changed_cells,
    "run": changed_cells,
    "parquet": changed_parquet,
}
