from __future__ import annotations

import resource
import subprocess
import sys

import pytest

HEAVY = ("torch", "ray", "deepspeed", "transformers", "plotly", "optuna", "sklearn", "scipy", "tensorboard")


@pytest.mark.parametrize("module", ["icalib", "icalib.cli"])
def test_importing_loads_no_heavy_library(module: str) -> None:
    code = f"import sys, {module}; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def _seconds_of_children() -> float:
    """The processor's time, which other work on the machine hardly changes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_help_answers_at_once() -> None:
    before = _seconds_of_children()
    command = [sys.executable, "-c", "from icalib.cli import main; main()", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert _seconds_of_children() - before < 0.5
    assert "icalib demo" in done.stdout
