"""Trials that predict the same, and what is said of them and of the best."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from unit.reports.fake_sweeps import Made, write_sweep
from unit.reports.pages import read_page, visible

from icalib.reports.sweep_views import SweepSummary, print_sweep, write_views
from icalib.sweeps.folder import SweepFolder
from icalib.sweeps.trials import Tie, sweep_trials, ties

GOOD, OTHER, POOR = [1.0, 2.0, 3.0, 1.0], [1.0, 2.0, 3.0, 1.5], [-1.0, -2.0, 3.0, 1.0]

Told = tuple[dict[str, Any], float, list[float]]
"""Settings, R@1 and predictions of a trial."""


def _sweep(root: Path, *trials: Told, **facts: int) -> SweepFolder:
    made = [Made(settings, [{"R@1": value}], margins=margins) for settings, value, margins in trials]
    return write_sweep(root, made, None, **facts)


def _ties(folder: SweepFolder) -> list[Tie]:
    return ties(folder, sweep_trials(folder))


def _said(folder: SweepFolder) -> str | None:
    return SweepSummary(folder).unchanged


def _lead(folder: SweepFolder) -> str:
    lead = SweepSummary(folder).lead
    assert lead is not None
    return lead


def test_a_setting_that_changed_nothing_is_named_with_its_values(tmp_path: Path) -> None:
    trials = [({"gamma": 1.0}, 0.5, POOR), ({"gamma": 2.0}, 1.0, GOOD), ({"gamma": 3.0}, 1.0, GOOD)]
    folder = _sweep(tmp_path, *trials)
    (tie,) = _ties(folder)
    assert (tie.trials, tie.varied, tie.kept_initial_weights) == ((1, 2), {"loss.gamma": (2.0, 3.0)}, False)
    said = _said(folder)
    assert said is not None
    assert said.startswith("2 of 3 trials")
    assert "loss.gamma (2.0, 3.0)" in said
    stream = io.StringIO()
    print_sweep(folder, Console(file=stream, width=200))
    assert said in " ".join(stream.getvalue().split())
    write_views(folder)
    assert said in visible(read_page(folder.path / "report.html"))


def test_trials_that_kept_their_initial_weights_tie_whatever_their_training(tmp_path: Path) -> None:
    rates = [{"gamma": gamma, "rate": rate} for gamma in (0.0, 1.0, 2.0) for rate in (1e-5, 1e-4)]
    folder = _sweep(tmp_path, *((settings, 1.0, GOOD) for settings in rates), epoch=0)
    said = _said(folder)
    assert said is not None
    assert said.startswith("6 of 6 trials")
    assert "loss.gamma (0.0, 1.0, 2.0) and loss.rate (1e-05, 0.0001)" in said
    assert "initial weights" in said
    lead = _lead(folder)
    assert "0, 1, 2, 3, 4, 5" in lead


@pytest.mark.parametrize(
    "trials",
    [
        [({"gamma": 1.0}, 1.0, GOOD), ({"gamma": 2.0}, 1.0, OTHER)],  # equal metrics
        [({"gamma": 1.0}, 1.0, GOOD), ({"gamma": 2.0}, 0.9, GOOD)],  # another decision by the same predictions
        [({"gamma": 1.0}, 1.0, GOOD), ({"gamma": 1.0}, 1.0, GOOD)],  # the same trial again
    ],
)
def test_nothing_is_said_where_no_setting_was_without_effect(tmp_path: Path, trials: list[Told]) -> None:
    assert _said(_sweep(tmp_path, *trials)) is None


def test_many_groups_in_which_the_same_setting_changed_nothing_are_one_statement(tmp_path: Path) -> None:
    points = [({"gamma": gamma, "idle": idle}, gamma, [gamma, 2.0]) for gamma in (0.1, 0.2, 0.3) for idle in (1, 2)]
    said = _said(_sweep(tmp_path, *points))
    assert said is not None
    assert said.startswith("6 of 6 trials")
    assert said.count("loss.idle (1, 2)") == 1
    assert "2 other groups" in said
    assert "gamma" not in said


def test_the_best_leads_the_first_that_predicts_otherwise(tmp_path: Path) -> None:
    trials = [({"gamma": 1.0}, 0.5, POOR), ({"gamma": 2.0}, 1.0, GOOD), ({"gamma": 3.0}, 1.0, GOOD)]
    text = _lead(_sweep(tmp_path, *trials))
    assert "Trials 1, 2 are the best" in text
    assert "leads trial 0" in text
    assert "+0.500" in text
