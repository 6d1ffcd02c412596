"""Workers gather values without running code that one of them sends."""

from __future__ import annotations

import pickle
from pathlib import Path

from helpers.gathering import RunsCode, work
from torch import multiprocessing


def test_two_workers_gather_their_values_and_run_no_code_of_each_other(tmp_path: Path) -> None:
    multiprocessing.spawn(work, (tmp_path,), nprocs=2)
    assert not (tmp_path / "ran").exists()
    pickle.loads(pickle.dumps(RunsCode(tmp_path / "ran")))
    assert (tmp_path / "ran").exists()
