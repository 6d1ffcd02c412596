from __future__ import annotations

import subprocess
import sys
import time

import pytest

HEAVY = ("torch", "ray", "deepspeed", "transformers", "plotly", "optuna", "sklearn", "scipy", "tensorboard")


@pytest.mark.parametrize("module", ["icalib", "icalib.cli"])
def test_importing_loads_no_heavy_library(module: str) -> None:
    code = f"import sys, {module}; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_answers_at_once() -> None:
    started = time.monotonic()
    command = [sys.executable, "-c", "from icalib.cli import main; main()", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert time.monotonic() - started < 1.0  # half a second is promised; a busy machine may take twice that
    assert "icalib demo" in done.stdout
