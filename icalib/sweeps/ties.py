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


def ties(folder: SweepFolder) -> list[Tie]:
    """Return the groups of two or more complete trials that predict the same, the largest first.

    Predictions are compared by their content: logits, probabilities, variances, mutual information and gain of every
    pair, bit by bit. Trials without predictions are left out.

    Raises:
        DamagedFileError: predictions or settings of a trial can't be read.
    """
    rows = [row for row in folder.trials().to_pylist() if row["state"] == "complete" and row["run"]]
    trials = [tuple(members) for members in _grouped(rows, lambda row: row["trial"])]
    trials = [members for members in trials if len(members) == folder.settings.seeds]
    found: list[Tie] = []
    # Equal predictions have equal metrics: only the predictions of trials that agree in these are read. And trials that
    # decide otherwise by the same predictions, by another threshold, differ.
    for candidates in _grouped(trials, lambda members: tuple(map(_metrics, members))):
        if len(candidates) > 1:
            runs = [[RunFolder(folder.path / row["run"]) for row in members] for members in candidates]
            numbered = [(members[0]["trial"], own) for members, own in zip(candidates, runs, strict=True)]
            predicted = [one for one in numbered if all(run.has_predictions("validation") for run in one[1])]
            groups = _grouped(predicted, lambda one: tuple(map(_predictions_digest, one[1])))
            found += [_tie(dict(group)) for group in groups if len(group) > 1]
    return sorted(found, key=lambda tie: (-len(tie.trials), tie.trials))


def _tie(runs: Mapping[int, Sequence[RunFolder]]) -> Tie:
    settings = [_by_dotted_key(own[0].config.get("settings", {})) for own in runs.values()]
    names = dict.fromkeys(name for one in settings for name in one)
    values = {name: {json.dumps(one.get(name)): one.get(name) for one in settings} for name in names}
    return Tie(
        trials=tuple(runs),
        varied={name: tuple(found.values()) for name, found in values.items() if len(found) > 1},
        kept_initial_weights=all(run.kept_initial_weights for own in runs.values() for run in own),
    )


def _metrics(row: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the validation metrics; as text, since NaN isn't equal to itself."""
    return tuple((one["name"], repr(one["value"])) for one in row["metrics"] or () if one["split"] == "validation")


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
