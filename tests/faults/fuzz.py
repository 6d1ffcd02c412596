"""Changed input for every parser: each gives a value, or an error that the user can fix."""

from __future__ import annotations

import json
import random
import shutil
import signal
import tempfile
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from faults.commands import LIMIT_S
from faults.trials import Outcome, Trial, ended_trial
from helpers.hostile import changed_parquet, changed_value

from icalib.core.errors import IcalibError

Files = Mapping[str, bytes]
"""Content by relative path."""
_TOKENS = (
    b"", b"\0", b"\xff\xfe", b"\xed\xa0\x80", b'"', b"'", b"{", b"}", b"[", b"]", b":", b",", b"\t", b"\r\n", b"\n\n",
    b"\\u0000", b"\\ud800", b"NaN", b"-Infinity", b"1e999", b"9" * 400, b"-1", b"null", b"true", b"{}", b"[]", b'""',
    b"\x1b[31m", b"../../x", b"\xe2\x80\xae", b"\xef\xbb\xbf", b" " * 300, b"(" * 1200,
)  # fmt: skip


@dataclass(frozen=True)
class Parser:
    """Reads the folder in which one of the valid examples was written, changed or not, and files that never are."""

    examples: tuple[Files, ...]
    read: Callable[[Path], object]
    fixed: Files = field(default_factory=dict[str, bytes])

    def write(self, folder: Path, example: Files) -> None:
        for name, data in {**self.fixed, **example}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def fuzz_once(parsers: Mapping[str, Parser], seed: int, number: int) -> Trial:
    """Read a changed example, in turn by each parser; keep the input of a trial that found a fault."""
    name = sorted(parsers)[number % len(parsers)]
    parser = parsers[name]
    rng = random.Random(f"{seed}/{name}/{number}")
    example = dict(rng.choice(parser.examples))
    changed = rng.choice(sorted(example))
    example[changed] = changed_file(changed, example[changed], rng)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "tmp").mkdir()
        parser.write(root / "input", example)
        with patch.object(tempfile, "tempdir", str(root / "tmp")):  # what is left there can be seen
            outcome, detail = _outcome(parser, root / "input")
        left = [path.name for path in (root / "tmp").iterdir()]
        if outcome in ("untyped", "hung"):
            kept = Path(tempfile.mkdtemp(prefix=f"fuzz-{name.replace(' ', '-')}-{seed}-{number}-"))
            shutil.copytree(root / "input", kept, dirs_exist_ok=True)
            detail = f"{changed} in {kept}\n{detail}"
    return ended_trial(f"fuzz: {name}", f"{seed}/{number}", [outcome], left, detail)


class _Late(BaseException):
    """The time is over."""


def _stop(number: int, frame: object) -> None:
    raise _Late


def _outcome(parser: Parser, folder: Path) -> tuple[Outcome, str]:
    signal.signal(signal.SIGALRM, _stop)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parser.read(folder)
    except IcalibError:
        return "refused", ""
    except _Late:
        return "hung", traceback.format_exc(limit=-12)
    except Exception:
        return "untyped", traceback.format_exc(limit=-12)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return "identical", ""


def changed_file(name: str, data: bytes, rng: random.Random) -> bytes:
    """Return a change that suits the kind of a file: of its bytes or, half of the time, of its values."""
    if rng.random() < 0.5:
        if name.endswith((".json", ".jsonl")):
            return _changed_json(data, rng)
        if name.endswith(".parquet"):
            return changed_parquet(data, rng) or _changed_bytes(data, rng)
    return _changed_bytes(data, rng)


def _changed_bytes(data: bytes, rng: random.Random) -> bytes:
    """Return one to four pieces left out, replaced, repeated or zeroed."""
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(data) + 1)
        piece = data[start : start + rng.choice((0, 1, 40, 512, len(data)))]
        new = rng.choice((b"", rng.choice(_TOKENS), rng.randbytes(len(piece) % 64), piece + piece, bytes(len(piece))))
        data = data[:start] + new + data[start + len(piece) :]
    return data


def _changed_json(text: bytes, rng: random.Random) -> bytes:
    """Return a change of the value in a JSON text, or in one of its lines."""
    try:
        return json.dumps(changed_value(json.loads(text), rng)).encode()
    except ValueError:
        lines = text.splitlines()
        chosen = rng.randrange(len(lines))
        lines[chosen] = json.dumps(changed_value(json.loads(lines[chosen]), rng)).encode()
        return b"\n".join(lines) + b"\n"
