from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HEAVY = ("torch", "ray", "deepspeed", "transformers", "plotly", "optuna", "sklearn", "scipy", "tensorboard")
ASKED = f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stdout)"


def _loaded_by(code: str) -> str:
    """The heavy libraries that a fresh interpreter has imported after some code."""
    done = subprocess.run([sys.executable, "-c", f"import sys\n{code}\n{ASKED}"], capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return done.stdout.strip().splitlines()[-1]


def test_importing_loads_no_heavy_library() -> None:
    """Every process of a Ray imports icalib.distributed.session; the command line needs pydantic for settings only."""
    cli = "import icalib.cli\nassert 'pydantic' not in sys.modules"
    others = "import icalib.api.runs, icalib.methods.catalogue, icalib.distributed.session"
    assert _loaded_by(f"{cli}\n{others}") == "[]"


def test_wrong_arguments_are_refused_without_heavy_libraries(tiny_pools: Path) -> None:
    pools = f"--data {tiny_pools}"
    lines = [
        "--version", "run --help", "methods", "run", "run bert", "run bert --data no-such-pools",
        "run bert --executor telepathy", f"run no-such-method {pools}", f"run bert {pools} --labelled 7",
        f"run bert {pools} --limit none", f"compare bert no-such-method {pools}",
        f"compare bert {pools} --shift no-such-pools", "prepare no-such-file.jsonl",
    ]  # fmt: skip
    each = (
        f"from icalib.cli import main\nfor line in {lines!r}:\n    sys.argv = ['icalib', *line.split()]\n"
        "    try:\n        main()\n    except SystemExit:\n        pass\n"
        f"    assert not any(name in sys.modules for name in {HEAVY}), line"
    )
    assert _loaded_by(each) == "[]"
