from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console
from unit.metrics.made_predictions import simulated_table

from icalib.core.run_folder import RunFolder
from icalib.pipeline.guarantees import Guarantees
from icalib.reports.guarantees import print_promises, promise_cells


def written(folder: Path, num_pools: int, num_candidates: int) -> RunFolder:
    run = RunFolder(folder)
    for seed, split in enumerate(("validation", "test"), start=1):
        run.write_table(
            f"predictions/{split}.parquet", simulated_table(num_pools, seed=seed, num_candidates=num_candidates)
        )
    return run


def test_promises_that_can_be_kept_have_a_threshold(tmp_path: Path) -> None:
    run, text = written(tmp_path, 400, 3), io.StringIO()
    kept = Guarantees(run).promise(0.2)
    *_, cell = promise_cells(run)
    assert cell.startswith(f"{kept.coverage:.0%}, from {kept.threshold:.3f}")
    assert f"{kept.num_wrong} of {kept.num_answered} were wrong" in cell
    print_promises(run, Console(file=text, width=160))
    assert cell in text.getvalue()


def test_promises_that_cannot_be_kept_say_why(tmp_path: Path) -> None:
    *hopeless, close = promise_cells(written(tmp_path, 30, 10))
    assert all("too often" in cell for cell in hopeless)
    assert close == "none: needs about 9,300 test pools"
