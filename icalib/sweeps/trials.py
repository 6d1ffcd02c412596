"""Trials of a sweep: what the study and the run folders have on each, and which come first."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, final

from optuna.trial import TrialState

from icalib.core.files import reading
from icalib.core.run_folder import RunFolder
from icalib.metrics.metric import Direction
from icalib.metrics.summary import over_seeds
from icalib.sweeps.folder import SweepFolder
from icalib.sweeps.study import error_of, order_of, recorded_trials, settings_of

State = Literal["complete", "pruned", "failed", "running"]

_STATES: Mapping[TrialState, State] = {
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.RUNNING: "running",
}


@final
@dataclass(frozen=True)
class Trial:
    """One choice of settings, by dotted key; `runs` are the finished ones, by seed."""

    number: int
    state: State
    settings: Mapping[str, Any]
    runs: tuple[RunFolder, ...] = ()
    error: str | None = None

    def mean(self, metric: str) -> float | None:
        """Mean validation value over the seeds; None where one of them has none."""
        return over_seeds(self._results, "validation", metric)[0]

    def deviation(self, metric: str) -> float | None:
        """Sample standard deviation over the seeds; None below two seeds."""
        return over_seeds(self._results, "validation", metric)[1]

    @property
    def validation(self) -> list[dict[str, float]]:
        """All metrics on validation, of each seed."""
        return [result["validation"] for result in self._results]

    @property
    def seconds(self) -> float:
        """Time of the runs, each with all its stages, also those that it shares with other trials."""
        return sum(result["seconds"]["total"] for result in self._results)

    @cached_property
    def _results(self) -> list[dict[str, Any]]:
        return [run.result for run in self.runs]


def sweep_trials(folder: SweepFolder) -> list[Trial]:
    """Return all trials that have started, by number; a DamagedFileError if the journal can't be read."""
    seeds = range(1, folder.settings.seeds + 1)
    found: list[Trial] = []
    with reading(folder.journal_path):
        for recorded in recorded_trials(folder.journal_path):
            runs = tuple(run for run in (folder.run_folder(recorded.number, seed) for seed in seeds) if run.is_finished)
            error = error_of(recorded)
            state = _STATES[recorded.state] if error is None else "failed"
            found.append(Trial(recorded.number, state, settings_of(recorded), runs, error))
    return found


def ranked(trials: Sequence[Trial], metrics: Mapping[str, Direction]) -> list[Trial]:
    """Return the complete trials that have all metrics, the best by the first metric first; ties by the next."""
    means = {
        trial.number: [mean for metric in metrics if (mean := trial.mean(metric)) is not None]
        for trial in trials
        if trial.state == "complete"
    }
    known = [trial for trial in trials if len(means.get(trial.number, ())) == len(metrics)]
    return sorted(known, key=lambda trial: (order_of(means[trial.number], metrics), trial.number))


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Return the last parts of dotted names, as many as distinguish them.

    Example:
        >>> short_names(["regime.rule.scale", "head.scale", "head.dropout"])
        {'regime.rule.scale': 'rule.scale', 'head.scale': 'head.scale', 'head.dropout': 'dropout'}
    """

    def last(name: str, num_parts: int) -> str:
        return ".".join(name.split(".")[-num_parts:])

    def shortest(name: str) -> str:
        lengths = range(1, name.count(".") + 1)
        return next((last(name, n) for n in lengths if sum(last(o, n) == last(name, n) for o in names) == 1), name)

    return {name: shortest(name) for name in names}


def value_text(value: Any) -> str:
    """A setting's value for people: at most four significant digits.

    Example:
        >>> value_text(0.30000000000000004), value_text(3.14159e-05), value_text("rbf"), value_text(True)
        ('0.3', '3.142e-05', 'rbf', 'true')
    """
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)


def settings_text(settings: Mapping[str, Any], names: Mapping[str, str] | None = None) -> str:
    """Settings in one line; `names` are their display names, None takes their last parts."""
    names = short_names(list(settings)) if names is None else names
    return ", ".join(f"{names[name]}={value_text(value)}" for name, value in settings.items())


def brief(error: str) -> str:
    """A message of many lines, a worker's traceback, by its beginning and what was raised; the report has it all."""
    first, *others = error.splitlines() or [""]
    raised = [line for line in others if re.match(r"[\w.]+(Error|Exception|Exit|Interrupt)\b", line)]
    return f"{first} … {raised[-1]} (the report has all of it)" if raised else error
