"""Trials of a sweep that predict the same: what their settings change made no difference."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast, final

import pyarrow as pa

from icalib.core.run_folder import RunFolder
from icalib.sweeps.folder import SweepFolder
from icalib.sweeps.trials import Trial

T = TypeVar("T")


@final
@dataclass(frozen=True)
class Tie:
    """Complete trials, by number, whose validation predictions and metrics are equal with every seed."""

    trials: tuple[int, ...]
    varied: Mapping[str, tuple[Any, ...]]
    """The settings in which they differ, by dotted key, with their values; none where all are the same trial again."""
    kept_initial_weights: bool
    """Whether each of their last trainings ended with the weights with which it began."""


def ties(folder: SweepFolder, trials: Sequence[Trial]) -> list[Tie]:
    """Return the groups of two or more complete trials of a sweep that predict the same, the largest first.

    Predictions are compared by their content: logits, probabilities, variances, mutual information and gain of every
    pair, bit by bit. Trials without predictions are left out.
    """
    seeds = folder.settings.seeds
    candidates = [trial for trial in trials if trial.state == "complete" and len(trial.runs) == seeds]
    found: list[Tie] = []
    # Equal predictions have equal metrics: only the predictions of trials that agree in these are read. And trials that
    # decide otherwise by the same predictions, by another threshold, differ.
    for alike in _grouped(candidates, lambda trial: tuple(map(_metrics, trial.runs))):
        if len(alike) > 1:
            predicted = [trial for trial in alike if all(run.has_predictions("validation") for run in trial.runs)]
            groups = _grouped(predicted, lambda trial: tuple(map(_predictions_digest, trial.runs)))
            found += [_tie(group) for group in groups if len(group) > 1]
    return sorted(found, key=lambda tie: (-len(tie.trials), tie.trials))


def _tie(trials: Sequence[Trial]) -> Tie:
    settings = [_by_dotted_key(trial.runs[0].config.get("settings", {})) for trial in trials]
    names = dict.fromkeys(name for one in settings for name in one)
    values = {name: {json.dumps(one.get(name)): one.get(name) for one in settings} for name in names}
    return Tie(
        trials=tuple(trial.number for trial in trials),
        varied={name: tuple(found.values()) for name, found in values.items() if len(found) > 1},
        kept_initial_weights=all(run.kept_initial_weights for trial in trials for run in trial.runs),
    )


def _metrics(run: RunFolder) -> tuple[tuple[str, str], ...]:
    """Return the validation metrics; as text, since NaN isn't equal to itself."""
    return tuple((name, repr(value)) for name, value in run.result["validation"].items())


def _predictions_digest(run: RunFolder) -> str:
    table = run.predictions("validation")
    digest = hashlib.sha256()
    for name in table.column_names:
        # Which view was chosen and how many passes were made are no predictions; pools are the same in all trials.
        if pa.types.is_floating(table.schema.field(name).type):
            digest.update(name.encode() + table[name].to_numpy().tobytes())
    return digest.hexdigest()


def _by_dotted_key(settings: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(settings, dict) or not settings:
        return {path: settings}
    nested = cast("dict[str, Any]", settings)
    return {
        name: value
        for key, below in nested.items()
        for name, value in _by_dotted_key(below, f"{path}.{key}".lstrip(".")).items()
    }


def _grouped(items: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """Return the items with equal keys together, in order of first appearance."""
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())
