"""Changed input for every parser: each gives a value, or an error that the user can fix."""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import traceback
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from faults.commands import LIMIT_S
from faults.mutations import changed_file
from faults.parsers import Files, Parser
from faults.tally import Outcome, Trial

from icalib.core.errors import IcalibError


def fuzz_once(parsers: Mapping[str, Parser], seed: int, number: int, limit_s: float = LIMIT_S) -> Trial:
    """Read a changed example, in turn by each parser."""
    name = sorted(parsers)[number % len(parsers)]
    parser = parsers[name]
    rng = random.Random(f"{seed}/{name}/{number}")
    example = dict(rng.choice(parser.examples))
    changed = rng.choice(sorted(example))
    example[changed] = changed_file(changed, example[changed], rng)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for part in ("input", "tmp"):
            (root / part).mkdir()
        write_files(root / "input", {**parser.fixed, **example})
        with _temporary_folder(root / "tmp"):
            outcome, detail = _outcome(parser, root / "input", limit_s)
        left = [path.name for path in (root / "tmp").iterdir()]
        if outcome in ("untyped", "hung"):
            detail = f"{changed} in {_kept(root / 'input', name, seed, number)}\n{detail}"
    outcomes: tuple[Outcome, ...] = (outcome, "leftovers") if left else (outcome,)
    return Trial(f"fuzz {name}", f"{seed}/{number}", outcomes, f"{detail}{' '.join(left)}")


def _outcome(parser: Parser, folder: Path, limit_s: float) -> tuple[Outcome, str]:
    try:
        with warnings.catch_warnings(), _time_limit(limit_s):
            warnings.simplefilter("ignore")
            parser.read(folder)
    except IcalibError:
        return "refused", ""
    except _Late:
        return "hung", traceback.format_exc(limit=-12)
    except Exception:
        return "untyped", traceback.format_exc(limit=-12)
    return "identical", ""


class _Late(BaseException):
    """The time is over."""


@contextmanager
def _time_limit(limit_s: float) -> Generator[None]:
    def stop(number: int, frame: object) -> None:
        raise _Late

    earlier = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)


@contextmanager
def _temporary_folder(folder: Path) -> Generator[None]:
    """Let `tempfile` use a folder, so that what is left in it can be seen."""
    earlier = tempfile.tempdir
    tempfile.tempdir = str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = earlier


def write_files(folder: Path, files: Files) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _kept(folder: Path, name: str, seed: int, number: int) -> str:
    """Keep the input of a trial that found a fault; return where."""
    kept = (
        Path(os.environ.get("ICALIB_FAULTS", tempfile.gettempdir())) / f"fuzz-{name.replace(' ', '-')}-{seed}-{number}"
    )
    shutil.copytree(folder, kept, dirs_exist_ok=True)
    return str(kept)
