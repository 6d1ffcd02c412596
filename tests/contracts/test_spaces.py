"""What every sweep space must do; a new one, of icalib or of a package outside of it, is discovered."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import optuna
import pytest
from helpers.discovery import spaces
from optuna.trial import FixedTrial

from icalib.core.component import with_settings
from icalib.methods.catalogue import load_method, presets
from icalib.regimes.self_training import SelfTraining
from icalib.sweeps.space import load_space
from icalib.sweeps.study import proposals

NAMES = spaces()
RULE = "regime.rule"
RATE, HEAD_RATE = "regime.training.learning_rate", "regime.training.head_learning_rate"
MAX_INFORMATION = math.log(2)  # of a candidate, which has two classes
ICAST: dict[str, tuple[Any, ...]] = {  # ICAST §5.3; λ is 0 on MANtIS with 5 and 10 % labels
    f"{RULE}.gain_threshold": (0.0, 0.02),
    f"{RULE}.positive_threshold": (0.8,),
    f"{RULE}.negative_threshold": (0.1,),
    f"{RULE}.calibrated_positive_threshold": (0.5,),
    f"{RULE}.calibrated_negative_threshold": (0.5,),
    f"{RULE}.confidence_threshold": (0.2,),
}
PUBLISHED: dict[str, dict[str, tuple[Any, ...]]] = {
    "icast_published": ICAST,
    "icast_grid": ICAST,
    "icast_tpe": ICAST,
    # GPF §3.1 has dropout and rate, §2.2 γ ≥ 1, Eq. 4 ridge 1; SNGP's released code ridge 1e-3, features and bound.
    "gpf_bert": {
        "loss.gamma": (0.0, 1.0), "head.ridge": (1e-3, 1.0), "head.num_features": (1024, 2048),
        "head.spectral_bound": (0.95, 1.0), "head.dropout": (0.1,), RATE: (5e-6,), HEAD_RATE: (5e-6,),
    },
    "gp_learning_rate": {RATE: (1e-5, 5e-6), HEAD_RATE: (3e-3,)},  # PG-DRR; 5e-6 is GPF's
    "pg_drr": {
        "head.kernel": ("rbf",), "head.length_scale": (1.0,), "head.output_scale": (8.0,), "head.num_chains": (30,),
        "head.num_steps": (10,),
    },
    "focal_gamma": {"loss.gamma": (0.0, 1.0, 3.0)},  # cross-entropy; GPF's minimum; Mukhoti et al. (2020)
}  # fmt: skip
"""What the papers use, by space."""
WITH_GRID = [name for name in NAMES if load_space(name).grid is not None]


@pytest.mark.parametrize("name", NAMES)
def test_every_draw_is_a_valid_method(name: str) -> None:
    space = load_space(name)
    assert space.description
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


@pytest.mark.parametrize("name", NAMES)
def test_mutual_information_can_exceed_every_confidence_threshold(name: str) -> None:
    base = load_method(load_space(name).method)
    if isinstance(base.regime, SelfTraining.Config) and base.regime.rule.scale == "absolute":
        assert all(value < MAX_INFORMATION for value in _proposed(name).get(f"{RULE}.confidence_threshold", ()))


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_what_the_papers_use_is_within_a_space(name: str) -> None:
    found = _proposed(name)
    for setting, values in PUBLISHED[name].items():
        numbers = all(isinstance(value, float) for value in found[setting])
        for value in values:
            assert value in found[setting] or (numbers and min(found[setting]) < value < max(found[setting])), setting


@pytest.mark.parametrize("name", ["icast_grid", "icast_tpe"])
def test_thresholds_of_the_paper_go_with_presets_that_have_precisions(name: str) -> None:
    base = with_settings(load_method("icast"), presets("icast")["bi-encoder"])
    assert proposals(load_space(name), base, load_space(name).sampler, 3)


@cache
def _proposed(name: str) -> dict[str, list[Any]]:
    """Values that a space proposes, by setting: of its grid, or of 400 random draws."""
    space = load_space(name)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1), directions=list(space.metrics.values()))
    trials = [FixedTrial(point) for point in space.points()] or [study.ask() for _ in range(400)]
    found: dict[str, list[Any]] = {}
    for trial in trials:
        for setting, value in space.proposed(trial).items():
            found.setdefault(setting, []).append(value)
    return found
