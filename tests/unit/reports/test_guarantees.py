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


def test_promises_that_can_be_kept_have_a_threshold_and_others_do_not(tmp_path: Path) -> None:
    run, text = written(tmp_path / "large", 400, 3), io.StringIO()
    print_promises(run, Console(file=text, width=160))
    kept, *_, cell = Guarantees(run).promise(0.2), *promise_cells(run)
    assert all(part in cell for part in (f"{kept.threshold:.3f}", f"{kept.num_wrong} of {kept.num_answered}"))
    assert cell in text.getvalue()
    assert not any("were wrong" in cell for cell in promise_cells(written(tmp_path / "small", 30, 10)))
