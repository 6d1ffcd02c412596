from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from icalib.core.imports import docstring

HEAVY = ("torch", "ray", "deepspeed", "transformers", "plotly", "optuna", "sklearn", "scipy", "tensorboard")
ASKED = f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stdout)"


def _loaded_by(code: str) -> str:
    """The heavy libraries that a fresh interpreter has imported after some code."""
    done = subprocess.run([sys.executable, "-c", f"import sys\n{code}\n{ASKED}"], capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return done.stdout.strip().splitlines()[-1]


@pytest.mark.parametrize(
    "module",
    [
        "icalib",
        "icalib.cli",
        "icalib.api.runs",
        "icalib.methods.catalogue",
        "icalib.distributed.session",  # imported by every process of a Ray, most of which need no torch
    ],
)
def test_importing_loads_no_heavy_library(module: str) -> None:
    assert _loaded_by(f"import {module}") == "[]"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["run", "--help"],
        ["methods"],
        ["run"],
        ["run", "bert"],
        ["run", "bert", "--data", "no-such-pools"],
        ["run", "bert", "--executor", "telepathy"],
        ["run", "no-such-method", "--data", "POOLS"],
        ["run", "bert", "--data", "POOLS", "--labelled", "7"],
        ["run", "bert", "--data", "POOLS", "--limit", "none"],
        ["compare", "bert", "no-such-method", "--data", "POOLS"],
        ["compare", "bert", "--data", "POOLS", "--shift", "no-such-pools"],
        ["prepare", "no-such-file.jsonl"],
        ["predict", "RUN", "--coverage", "many"],
    ],
    ids=" ".join,
)
def test_wrong_arguments_are_refused_without_heavy_libraries(arguments: list[str], tiny_pools: Path) -> None:
    words = [str(tiny_pools) if word == "POOLS" else word for word in arguments]
    verb = f"sys.argv = {['icalib', *words]!r}\nfrom icalib.cli import main"
    code = f"{verb}\ntry:\n    main()\nexcept SystemExit:\n    pass"
    assert _loaded_by(code) == "[]"


def test_the_first_line_comes_before_the_heavy_libraries(tiny_pools: Path) -> None:
    code = (
        "import sys\n"
        "class NoTorch:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'torch':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, NoTorch())\n"
        "from icalib.cli import main\n"
        f"sys.argv = ['icalib', 'run', 'bert', '--data', {str(tiny_pools)!r}, '--executor', 'local']\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.startswith("run bert: loading libraries …\n")
    assert "Interrupted" in done.stderr


def test_an_error_that_needs_no_heavy_library_is_the_only_line() -> None:
    command = [sys.executable, "-m", "icalib", "run", "bert", "--data", "no-such-pools"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stderr.startswith("error: ")


def test_docstrings_are_read_without_running_the_module() -> None:
    assert (
        docstring("icalib.methods.bm25")
        == "BM25 of the candidate given the context; no training. A row of every comparison."
    )
    assert docstring("no_such_module") is None


def _seconds_of_children() -> float:
    """The processor's time, which other work on the machine hardly changes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_help_answers_at_once() -> None:
    command = [sys.executable, "-c", "from icalib.cli import main; main()", "--help"]
    seconds: list[float] = []
    for _ in range(3):  # the least: another program on the same core doubles it
        before = _seconds_of_children()
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        seconds.append(_seconds_of_children() - before)
    assert min(seconds) < 0.5
    assert "icalib demo" in done.stdout


def test_the_command_line_needs_pydantic_for_settings_only() -> None:
    assert _loaded_by("import icalib.cli\nassert 'pydantic' not in sys.modules") == "[]"
