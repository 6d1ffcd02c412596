from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from icalib.core.process import usable_cores


@pytest.mark.parametrize(
    ("text", "most"), [("max 100000\n", 64), ("100000 100000\n", 1), ("150000 100000\n", 1), ("20000 100000\n", 1)]
)
def test_a_containers_quota_limits_the_cores(tmp_path: Path, text: str, most: int) -> None:
    quota = tmp_path / "cpu.max"
    quota.write_text(text)
    assert usable_cores(quota) == min(usable_cores(tmp_path / "none"), most)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system has no affinity")
def test_cores_of_other_processes_do_not_count() -> None:
    code = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n"
    code += "from icalib.core.process import usable_cores; print(usable_cores())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "1\n"
