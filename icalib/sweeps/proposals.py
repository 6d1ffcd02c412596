"""What a space proposes, as far as the method accepts it; and the samplers that draw."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, NSGAIISampler, QMCSampler, RandomSampler, TPESampler
from optuna.trial import FixedTrial

from icalib.core.component import has_setting, with_settings
from icalib.core.errors import SettingError
from icalib.core.seeding import child_seed
from icalib.methods.composition import Method
from icalib.sweeps.space import SAMPLERS, Space

NUM_TRIALS = 20
"""Trials of a sweep without a grid, unless set."""
MAX_REFUSALS = 50
"""Proposals in a row that a method may refuse before the sweep ends with an error."""

_SEED = 1


class RefusedSettings(SettingError):
    """Existing settings with values that the method refuses, such as thresholds in the wrong order."""


@dataclass(frozen=True)
class Proposal:
    """A trial to run: its number, the settings that the space proposed, and the method with them."""

    number: int
    settings: dict[str, Any]
    method: Method


def proposals(space: Space, base: Method, sampler: str, num_trials: int | None) -> list[Proposal]:
    """Return what a sweep would try if it learnt nothing from its trials; nothing is stored.

    Raises:
        SettingError: the space is invalid, or proposes nothing that the method accepts.
    """
    if sampler == "grid":
        points = feasible_points(space, base)[:num_trials]
        settings = [space.proposed(FixedTrial(point)) for point in points]
        return [Proposal(number, one, changed_method(base, one)) for number, one in enumerate(settings)]
    study = optuna.create_study(directions=list(space.metrics.values()))
    found: list[Proposal] = []
    refusals = 0
    while len(found) < (num_trials or NUM_TRIALS):
        study.sampler = make_sampler(sampler, len(study.trials))
        proposed = space.proposed(study.ask())
        try:
            found.append(Proposal(len(found), proposed, changed_method(base, proposed)))
            refusals = 0
        except RefusedSettings as error:
            refusals += 1
            if refusals > MAX_REFUSALS:
                raise nothing_feasible(space, error) from error
    return found


def feasible_points(space: Space, base: Method) -> list[dict[str, Any]]:
    """Return the points of a space's grid that the method accepts.

    Raises:
        SettingError: there is no grid, or no point that the method accepts.
    """
    if space.grid is None:
        raise SettingError(
            f"the space `{space.name}` has no function `grid()`, which --sampler grid needs. Choose another sampler "
            f"({', '.join(name for name in SAMPLERS if name != 'grid')}), or add the function."
        )
    kept: list[dict[str, Any]] = []
    refusal: RefusedSettings | None = None
    points = space.points()
    if not points:
        raise SettingError(f"{space.file}: grid() has no points. Add some, or choose another --sampler.")
    for point in points:
        try:
            changed_method(base, space.proposed(FixedTrial(point)))
            kept.append(point)
        except RefusedSettings as error:
            refusal = error
    if not kept:
        raise nothing_feasible(space, refusal)
    return kept


def nothing_feasible(space: Space, refusal: RefusedSettings | None) -> SettingError:
    """Return the error of a space of which the method refuses everything."""
    return SettingError(
        f"the space `{space.name}` proposes nothing that the method accepts; the last refusal: {refusal}. "
        "Change the space, or what is fixed, with --set."
    )


def changed_method(base: Method, settings: Mapping[str, Any]) -> Method:
    """Return the method with a proposal's settings.

    Raises:
        RefusedSettings: a value that the method refuses.
        SettingError: a setting that does not exist.
    """
    unknown = [
        path
        for path in settings
        if not has_setting(base, path) and not any(path.startswith(f"{whole}.") for whole in settings)
    ]
    try:
        return with_settings(base, settings)
    except SettingError as error:
        if unknown:
            raise SettingError(f"the space proposes a setting that does not exist: {error}") from error
        raise RefusedSettings(str(error)) from error


def make_sampler(name: str, number: int) -> BaseSampler:
    """Return the sampler for the trial of a number, seeded by that number."""
    seed = child_seed(_SEED, "sampler", number) % 2**32
    if name == "tpe":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            return TPESampler(seed=seed, constant_liar=True)  # trials that run side by side are kept apart
    if name == "nsga2":
        return NSGAIISampler(population_size=10, seed=seed)
    if name == "qmc":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            # One seed for one sequence; the study counts how far it has come.
            return QMCSampler(seed=_SEED, independent_sampler=RandomSampler(seed), warn_independent_sampling=False)
    return RandomSampler(seed)
