from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from unit.reports.fake_sweeps import Made, write_sweep

from icalib.methods.catalogue import load_method
from icalib.metrics.metric import Direction
from icalib.sweeps.space import load_space
from icalib.sweeps.study import SweepStudy
from icalib.sweeps.sweep import mean_of
from icalib.sweeps.trials import ranked, sweep_trials


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


def test_trials_with_as_many_hits_are_tied_however_these_lie_over_the_seeds(tmp_path: Path) -> None:
    """27 of 75: the sums over the seeds differ in their last digit."""
    metrics: dict[str, Direction] = {"R@1": "maximize", "NLL": "minimize"}
    made = [
        Made({"a": number}, [{"R@1": hits / 25, "NLL": nll} for hits in all_hits])
        for number, (all_hits, nll) in enumerate([((4, 18, 5), 0.3), ((8, 15, 4), 0.2)])
    ]
    folder = write_sweep(tmp_path, made, metrics)
    first, second = ([mean_of([folder.run_folder(n, s)], "validation", "R@1")[0] for s in (1, 2, 3)] for n in (0, 1))
    assert np.mean(first) > np.mean(second)
    best, _ = ranked(sweep_trials(folder), metrics)
    assert best.number == 1
    space = load_space("ranking_and_calibration")
    winner = SweepStudy(space, load_method(space.method), "tpe", 2, folder.journal_path).winner()
    assert winner is not None
    assert winner.number == 1
