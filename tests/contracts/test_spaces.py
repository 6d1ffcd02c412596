"""What every sweep space must do; a new one, of icalib or of a package outside of it, is discovered."""

from __future__ import annotations

import optuna
import pytest
from helpers.discovery import spaces
from optuna.trial import FixedTrial

from icalib.core.component import with_settings
from icalib.methods.catalogue import load_method, presets
from icalib.sweeps.space import load_space
from icalib.sweeps.study import proposals

NAMES = spaces()
WITH_GRID = [name for name in NAMES if load_space(name).grid is not None]


@pytest.mark.parametrize("name", NAMES)
def test_every_draw_is_a_valid_method(name: str) -> None:
    space = load_space(name)
    base = load_method(space.method)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1), directions=list(space.metrics.values()))
    changed = 0
    for _ in range(60):
        settings = space.suggest(study.ask())
        if name not in ("icast_published", "icast_grid"):  # their product holds orders that the sweep leaves out
            changed += with_settings(base, settings) != base
    assert changed > 30 or name in ("icast_published", "icast_grid")


@pytest.mark.parametrize("name", WITH_GRID)
def test_every_point_of_a_grid_is_what_suggest_takes(name: str) -> None:
    space = load_space(name)
    assert space.grid is not None
    points = space.grid()
    assert space.points() == points  # no point twice
    for point in points:
        trial = FixedTrial(point)
        assert space.proposed(trial)
        assert trial.params == point
    assert len({str(point) for point in points}) == len(points)


@pytest.mark.parametrize("name", NAMES)
def test_a_sweep_finds_trials_in_it(name: str) -> None:
    space = load_space(name)
    found = proposals(space, load_method(space.method), space.sampler, 3)
    assert [proposal.number for proposal in found] == [0, 1, 2]
    assert all(proposal.settings for proposal in found)


@pytest.mark.parametrize("name", ["icast_grid", "icast_published", "icast_tpe"])
def test_thresholds_of_the_paper_go_with_presets_that_have_precisions(name: str) -> None:
    base = with_settings(load_method("icast"), presets("icast")["bi-encoder"])
    assert proposals(load_space(name), base, load_space(name).sampler, 3)
