from __future__ import annotations

import math
from pathlib import Path

import pytest
from unit.reports.fake_sweeps import Made, write_sweep

from icalib.sweeps.sweep import mean_of
from icalib.sweeps.trials import sweep_trials


def test_seeds_are_put_together_and_all_must_be_there(tmp_path: Path) -> None:
    values = (0.5, 0.6, 0.7)
    (trial,) = sweep_trials(write_sweep(tmp_path, [Made({"a": 1}, [{"R@1": value} for value in values])]))
    assert trial.mean("R@1") == pytest.approx(0.6)
    assert trial.deviation("R@1") == pytest.approx(0.1)
    assert trial.seconds == 210
    assert trial.mean("F1") is None


def test_a_metric_that_a_seed_has_no_value_of_has_no_mean(tmp_path: Path) -> None:
    """E.g. the AUROC of answers that are all wrong."""
    folder = write_sweep(tmp_path, [Made({"a": 1}, [{"R@1": 0.5, "AUROC": auroc} for auroc in (math.nan, 0.7, 0.8)])])
    runs = [folder.run_folder(0, seed) for seed in (1, 2, 3)]
    assert all(math.isnan(value) for value in mean_of(runs, "validation", "AUROC"))
    assert mean_of(runs[1:], "validation", "AUROC") == pytest.approx((0.75, 0.0707106781))
