"""Results of several runs side by side: rows by method, mean and deviation over seeds, the best of a column."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, cast, final

from icalib.core.component import short_target
from icalib.core.errors import SettingError
from icalib.core.run_folder import RunFolder
from icalib.metrics.builtin import BUILTIN
from icalib.metrics.catalogue import find_metric, metrics_among
from icalib.metrics.metric import Direction
from icalib.metrics.summary import over_seeds

Result = Mapping[str, Any]
"""What `--json` prints and result.json holds."""

COLUMNS = ("R@1", "R@2", "R@5", "MAP", "F1", "ECE", "ECE_top1", "NLL", "Brier", "AURC")
"""Metrics of the comparison table, in order."""

SHIFT_COLUMNS = ("R@1", "MAP", "ECE", "ECE_adaptive", "NLL", "Brier")
"""Metrics of the tables of runs on pools that they were not trained on, in order."""

_ARROWS: Mapping[Direction | None, str] = {"maximize": " ↑", "minimize": " ↓", None: ""}

MISSING = "–"

_NAMING = ("version", "method", "data", "labelled", "seed", "experiment", "metrics")
"""Settings that don't tell runs of a row apart: its own, and those that don't change what is trained."""

CANDIDATES_ONLY = "candidates-only"
"""The method that shows what pools give away."""


@final
@dataclass(frozen=True)
class MethodRow:
    """One method on the pools of one split with one labelled fraction: `results` has one entry per seed."""

    label: str
    results: tuple[Result, ...]
    split: str = "test"
    labelled: float | None = None  # None of a method that learns from no labels

    @property
    def num_seeds(self) -> int:
        """Number of runs behind the row."""
        return len(self.results)

    @property
    def runs(self) -> list[RunFolder]:
        """The runs behind the row, of `run_results`."""
        return [RunFolder(result["run"]) for result in self.results]

    @property
    def seconds(self) -> float:
        """Mean wall-clock seconds of a run."""
        return statistics.fmean(result["seconds"]["total"] for result in self.results)

    def mean(self, metric: str) -> float | None:
        """Mean value over the seeds; None where one of them has none."""
        return over_seeds(self.results, self.split, metric)[0]

    @property
    def ranks(self) -> bool:
        """Whether R@1 is above what chance gives, one-sided at 5 %; True where the results don't say."""
        recall, limit = self.mean("R@1"), self.mean("R@1_chance")
        return recall is None or limit is None or recall > limit

    def deviation(self, metric: str) -> float | None:
        """Sample standard deviation over the seeds; None below two seeds, or where one has no value."""
        return over_seeds(self.results, self.split, metric)[1]


def data_name(result: Result) -> str:
    """Name of the pool set: the last part of its path."""
    return PurePath(result["data"]).name


def run_results(runs: Iterable[RunFolder]) -> list[Result]:
    """Results of finished runs, with what says which of them can be compared: `digest` of their pools, `settings`.

    `run` is the folder on this machine, where `RunFolder.result` has an object store's URI.
    """
    found: list[Result] = []
    for run in runs:
        result = run.result
        result |= {"run": str(run.path), "digest": run.data_digest, "settings": settings_of(run)}
        found.append(result)
    return found


def shift_results(runs: Iterable[RunFolder]) -> list[Result]:
    """Evaluations of finished runs on other pool sets, with the runs' `settings`."""
    found: list[Result] = []
    for run in runs:
        settings = settings_of(run)
        for result in run.shifts():
            result["settings"] = settings
            found.append(result)
    return found


def settings_of(run: RunFolder) -> dict[str, str]:
    """Return a run's settings by dotted name as texts, with the digest of its pools, without what names it only."""
    found = flat_settings({name: value for name, value in run.config.items() if name not in _NAMING})
    texts = {name: one if isinstance(one, str) else json.dumps(one, default=str) for name, one in found.items()}
    left_out = {"resample_labels": "false"}  # in a config.yaml where it is false
    return {**left_out, **texts, "data": run.data_digest}


def flat_settings(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return settings that have a value by their dotted names; a component is a setting with its short name."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= flat_settings(cast("Mapping[str, Any]", value), f"{prefix}{name}.")
        elif name == "target":
            found[prefix.removesuffix(".")] = short_target(value)
        elif value is not None:
            found[f"{prefix}{name}"] = value
    return found


def by_data(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Results by pool set, in order of first appearance; only results on the same pools can be compared.

    The keys are the pool sets' names, with the beginning of their digests where several have one name.
    """
    grouped: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        grouped.setdefault((data_name(result), result.get("digest", "")), []).append(result)
    names = [name for name, _ in grouped]
    return {
        name if names.count(name) == 1 else f"{name} ({digest[:8]})": group for (name, digest), group in grouped.items()
    }


def by_shift(results: Sequence[Result]) -> list[tuple[str, list[Result]]]:
    """Evaluations on other pool sets that can be compared, with what was trained on and tested on as a title."""
    grouped: dict[tuple[str, str, str, int | None], list[Result]] = {}
    for result in results:
        trained_on = PurePath(result["trained_on"]).name
        grouped.setdefault((trained_on, data_name(result), result["digest"], result["limit"]), []).append(result)
    return [
        (f"trained on {source}, tested on {target}" + ("" if limit is None else f" (at most {limit} pools)"), group)
        for (source, target, _, limit), group in grouped.items()
    ]


def method_rows(results: Sequence[Result]) -> list[MethodRow]:
    """Return one row per method in order of first appearance, and per labelled fraction where there are several.

    A method that learns from no labels has one row, whatever fraction its runs were given.
    Runs of one method whose `settings` differ are rows of their own, labelled with the settings that tell them apart.
    Equal runs, e.g. of a baseline in two experiments, count once; a SettingError says that their metrics differ.
    """
    several = len({_labelled(result) for result in results} - {None}) > 1
    variants: dict[str, dict[_Settings, str]] = {}  # names by settings, as the run that came first has them
    grouped: dict[tuple[str, _Settings, float | None], list[Result]] = {}
    for result in results:
        name, settings = str(result["method"]), frozenset(result.get("settings", {}).items())
        method = name.partition("@")[0]
        variants.setdefault(method, {}).setdefault(settings, name)
        grouped.setdefault((method, settings, _labelled(result)), []).append(result)
    labels = {method: _variant_labels(method, names) for method, names in variants.items()}
    return [
        _row(at_fraction(labels[method][settings], labelled if several else None), labelled, members)
        for (method, settings, labelled), members in grouped.items()
    ]


def _labelled(result: Result) -> float | None:
    """Return the labelled fraction that a run learnt from."""
    return None if result.get("settings", {}).get("settings.regime") == "untrained" else float(result["labelled"])


_Settings = frozenset[tuple[str, str]]


def _variant_labels(method: str, names: Mapping[_Settings, str]) -> dict[_Settings, str]:
    """Return a label for each variant of a method: its name, with settings where others have the same one."""
    found: dict[_Settings, str] = {}
    for name in dict.fromkeys(names.values()):
        found |= _labels(name, [settings for settings, own in names.items() if own == name])
    if len({*found.values()}) < len(found):  # settings were given by the name of one and beside that of another
        return _labels(method, list(names))
    return found


def _labels(method: str, variants: Sequence[_Settings]) -> dict[_Settings, str]:
    """Return a label for each of some settings of a method, with as many of them as tell all apart."""
    named = [dict(settings) for settings in variants]

    def num_different(names: Sequence[str]) -> int:
        return len({tuple(settings.get(name) for name in names) for settings in named})

    chosen: list[str] = []

    def order(name: str) -> tuple[bool, bool, int, str]:  # what a method is, before how many pools it was given
        return name.startswith("limit."), not name.startswith("settings."), name.count("."), name

    for name in sorted({name for settings in named for name in settings}, key=order):
        if num_different([*chosen, name]) > num_different(chosen):
            chosen.append(name)
    mark = "," if "@" in method else "@"  # as in the name of a variant
    labels = (
        method + mark * bool(chosen) + ",".join(f"{n.removeprefix('settings.')}={one.get(n, 'null')}" for n in chosen)
        for one in named
    )
    return dict(zip(variants, labels, strict=True))


def at_fraction(label: str, labelled: float | None) -> str:
    """Return the label of a row beside rows of other labelled fractions; None of one that has none."""
    return label if labelled is None else f"{label} {format_fraction(labelled)}"


def _row(label: str, labelled: float | None, results: Sequence[Result]) -> MethodRow:
    by_seed: dict[int, Result] = {}
    for result in results:
        other = by_seed.setdefault(result["seed"], result)
        if other["test"] != result["test"]:  # of another version or machine
            raise SettingError(
                f"{other['run']} and {result['run']} are runs of {label} with the same settings and seed "
                f"{result['seed']}, but other metrics. Name one of the two."
            )
    return MethodRow(label, tuple(by_seed[seed] for seed in sorted(by_seed)), labelled=labelled)


def shown_metrics(results: Sequence[Result], chosen: Sequence[str] = COLUMNS) -> tuple[str, ...]:
    """Return the columns of a table of results, without R@5 of five candidates, which is 1 for every ranker."""
    says_something = not results or any(result["test"].get("R@5") != 1 for result in results)
    said = [name for name in chosen if name != "R@5" or says_something]
    return with_outside_metrics(said, {name: None for result in results for name in result["test"]})


def with_outside_metrics(chosen: Sequence[str], measured: Iterable[str]) -> tuple[str, ...]:
    """Return the chosen metrics, then the measured ones that apply to some pools only, or come from outside icalib."""
    further = (
        name
        for name, metric in metrics_among(measured).items()
        if metric not in BUILTIN or (metric.applies is not None and metric.direction is not None)
    )
    return tuple(dict.fromkeys((*chosen, *further)))


def best_labels(rows: Sequence[MethodRow], metric: str) -> set[str]:
    """Return the labels of the rows with the best mean as it is printed; empty if there is nothing to compare.

    Rows that rank no better than chance are left out: one that always answers with the fraction of right candidates has
    an ECE of 0, and says nothing.
    """
    found = {row.label: (round(mean, 3), row.ranks) for row in rows if (mean := row.mean(metric)) is not None}
    means = {label: mean for label, (mean, ranks) in found.items() if ranks}
    direction = find_metric(metric).direction
    if len(found) < 2 or direction is None or not means:
        return set()
    best = max(means.values()) if direction == "maximize" else min(means.values())
    return {label for label, mean in means.items() if mean == best}


def heading(metric: str, unit: str = "") -> str:
    """Return a metric's title, with an arrow that says what is better."""
    found = find_metric(metric)
    return found.title + unit + _ARROWS[found.direction]


def format_value(value: float | None) -> str:
    """Three decimals, or a dash if there is no value."""
    return MISSING if value is None or not math.isfinite(value) else f"{value:.3f}"


def format_spread(mean: float | None, deviation: float | None) -> str:
    """Mean ± standard deviation, the latter if there are several seeds."""
    return format_value(mean) + ("" if deviation is None else f" ± {format_value(deviation)}")


def format_difference(value: float | None, digits: int = 3) -> str:
    """Decimals with a sign, or a dash if there is no value."""
    if value is None:
        return MISSING
    return f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", "−")  # adding 0 turns −0.0 into 0.0


def format_share(value: float | None) -> str:
    """Percentage with one decimal, or a dash if there is no value."""
    return MISSING if value is None else f"{100 * value:.1f} %"


def format_p(value: float) -> str:
    """A p-value with three decimals."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def format_fraction(fraction: float) -> str:
    """A fraction of labelled pools, as precise as in names of run folders.

    Example:
        >>> format_fraction(0.1), format_fraction(0.07), format_fraction(0.00003)
        ('10 %', '7 %', '0.003 %')
    """
    return f"{100 * fraction:g} %"


def format_seconds(seconds: float) -> str:
    """A duration for people.

    Example:
        >>> format_seconds(3.21), format_seconds(250), format_seconds(7300)
        ('3.2 s', '4 min 10 s', '2 h 1 min')
    """
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    return f"{hours} h {minutes_left} min" if hours else f"{minutes} min {rest} s"
