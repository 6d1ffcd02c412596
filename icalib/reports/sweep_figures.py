"""The pictures of a sweep, by optuna.visualization: of the settings that were tried, not of what a space drew."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, final

import optuna
import plotly.graph_objects as go
from markupsafe import Markup
from optuna import visualization
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.importance import MeanDecreaseImpurityImportanceEvaluator, get_param_importances
from optuna.trial import TrialState, create_trial

from icalib.metrics.catalogue import find_metric
from icalib.metrics.metric import Direction
from icalib.reports.charts import seeds_line
from icalib.reports.comparison import heading
from icalib.reports.page import figure_json
from icalib.sweeps.trials import Trial, short_names, value_text

MIN_WEIGHED = 10
"""Fewer trials say little about which of several settings matters."""
MOST_LINES = 200
"""Trials in parallel coordinates: more are a carpet, and take Optuna seconds and the browser megabytes."""

_FOREST_SEED = 0
_OTHERS, _FRONT = "#9ecae1", "#cb181d"


@final
@dataclass(frozen=True)
class Picture:
    """A figure, its title and how to read it; a wide one needs the width of the page."""

    title: str
    reading: str
    figure: go.Figure
    is_wide: bool = False

    @property
    def json(self) -> Markup:
        """The figure, on white even on a dark page: Optuna's best trials are dark blue."""
        figure = self.figure
        figure.update_layout(title=None, plot_bgcolor="white", paper_bgcolor="white", font_color="#1c2026")
        for update in (figure.update_xaxes, figure.update_yaxes):
            update(gridcolor="#e2e5ea", zerolinecolor="#e2e5ea", title_font_color="#5d6572")
            update(selector={"type": "log"}, dtick=1, exponentformat="power")
        return figure_json(figure)


def pictures(trials: Sequence[Trial], metrics: Mapping[str, Direction]) -> Iterator[Picture]:
    """Yield the pictures of a sweep from its complete trials, the best first; none below two trials."""
    if len(trials) < 2:
        return
    for pair in combinations(metrics.items(), 2):
        yield _pareto_front(trials, dict(pair))
    for metric, direction in metrics.items():
        title = find_metric(metric).title
        study = study_of(trials, {metric: direction})
        yield Picture(
            f"History of {title}",
            "Complete trials in the order in which they were started, and the best so far. A line that still rises or "
            "falls at the right end suggests more trials.",
            visualization.plot_optimization_history(study, target_name=title),
        )
        if all(len(trial.settings) == 1 for trial in trials):
            yield from _curves(trials, metric)
        elif study.trials[trials[0].number].params:
            yield from _together(trials, study, title, {metric: direction})


def study_of(trials: Sequence[Trial], metrics: Mapping[str, Direction]) -> optuna.Study:
    """Return complete trials as a study: the settings that vary by their short names, and means over the seeds.

    A space may draw fractions, or positions in a list, where people look for thresholds and rates; numbers are on a
    linear or logarithmic scale even where the space has them as choices. Trials keep their numbers.
    """
    axes = _axes(trials)
    names = short_names(list(axes))
    study = optuna.create_study(directions=list(metrics.values()))
    numbered = {trial.number: trial for trial in trials}
    for number in range(max(numbered) + 1):
        if (trial := numbered.get(number)) is None:
            study.add_trial(create_trial(state=TrialState.FAIL))
            continue
        own = {name: axis for name, axis in axes.items() if name in trial.settings}
        study.add_trial(
            create_trial(
                values=[trial.mean(metric) or 0.0 for metric in metrics],
                params={names[name]: _place(trial.settings[name], axis) for name, axis in own.items()},
                distributions={names[name]: axis for name, axis in own.items()},
            )
        )
    return study


def _together(
    trials: Sequence[Trial], study: optuna.Study, title: str, metrics: Mapping[str, Direction]
) -> Iterator[Picture]:
    yield from _weighed(study, title)
    yield Picture(
        f"{title} by each setting",
        "All complete trials over one setting, whatever the others were; the darker, the later.",
        visualization.plot_slice(study, target_name=title),
        is_wide=True,
    )
    drawn = study_of(trials[:MOST_LINES], metrics)
    yield Picture(
        f"{title} in parallel coordinates",
        f"One line for each of at most {MOST_LINES} trials, the best ones, through its metric and its settings.",
        visualization.plot_parallel_coordinate(drawn, target_name=title),
        is_wide=True,
    )


def _weighed(study: optuna.Study, title: str) -> Iterator[Picture]:
    """Which settings matter, where there are several and enough trials to estimate it."""
    trials = study.get_trials(states=(TrialState.COMPLETE,))
    shared = set.intersection(*(set(trial.params) for trial in trials))
    if len(trials) < MIN_WEIGHED or len(shared) < 2 or len({trial.values[0] for trial in trials}) < 2:
        return
    # Functional ANOVA takes 130 s for 500 trials, and PED-ANOVA ranks six settings by chance in 20.
    evaluator = MeanDecreaseImpurityImportanceEvaluator(seed=_FOREST_SEED)
    yield Picture(
        f"Importance for {title}",
        "How much each setting that all trials have helps a random forest to predict the metric. With few trials this "
        "is rough, and where a sampler looked at good values more often it holds for these.",
        visualization.plot_param_importances(study, evaluator=evaluator, target_name=title),
    )
    most = list(get_param_importances(study, evaluator=evaluator))[:2]
    yield Picture(
        f"{title} by the two most important settings",
        "Complete trials by the rank of their metric.",
        visualization.plot_rank(study, params=most, target_name=title),
    )


def _pareto_front(trials: Sequence[Trial], metrics: Mapping[str, Direction]) -> Picture:
    titles = [f"{heading(metric)}, validation" for metric in metrics]
    figure = visualization.plot_pareto_front(study_of(trials, metrics), target_names=titles)
    for trace, colour in zip(figure.data, (_OTHERS, _FRONT), strict=True):
        # Optuna's shades say when a trial was, in two colour bars; the earliest is white, on the front too
        trace.marker.update(color=colour, showscale=False)
    return Picture(
        " and ".join(find_metric(metric).title for metric in metrics),
        "No trial is better than a red one in both metrics at once; which of them to use is a choice.",
        figure,
    )


def _curves(trials: Sequence[Trial], metric: str) -> Iterator[Picture]:
    """A metric over the values of each setting, as in ICAST's Figure 3; Optuna's slices have neither lines nor bars."""
    axes = _axes(trials)
    for name, label in short_names(list(axes)).items():
        axis = axes[name]
        own = [trial for trial in trials if name in trial.settings]
        own.sort(key=lambda trial: _place(trial.settings[name], axis))
        figure = go.Figure()
        figure.add_scatter(
            **seeds_line(0, [trial.mean(metric) for trial in own], [trial.deviation(metric) for trial in own]),
            x=[_place(trial.settings[name], axis) for trial in own],
            text=[f"trial {trial.number}" for trial in own],
        )
        figure.update_xaxes(title_text=label, type="log" if isinstance(axis, FloatDistribution) and axis.log else None)
        figure.update_yaxes(title_text=f"{heading(metric)}, validation")
        yield Picture(
            f"{find_metric(metric).title} by {label}",
            "Trials that change this setting alone: mean over the seeds ± standard deviation. Less than that is noise.",
            figure,
        )


def _axes(trials: Sequence[Trial]) -> dict[str, FloatDistribution | CategoricalDistribution]:
    """The scale of each setting that has more than one value, by its name."""
    columns: dict[str, list[Any]] = {}
    for trial in trials:
        for name, value in trial.settings.items():
            columns.setdefault(name, []).append(value)
    return {name: _axis(values) for name, values in columns.items() if len(set(map(repr, values))) > 1}


def _axis(values: Sequence[Any]) -> FloatDistribution | CategoricalDistribution:
    if all(map(_is_number, values)):
        return FloatDistribution(float(min(values)), float(max(values)), log=0 < 10 * min(values) <= max(values))
    return CategoricalDistribution(sorted({value_text(value) for value in values}))


def _place(value: Any, axis: FloatDistribution | CategoricalDistribution) -> Any:
    """Where a setting's value is on its axis: numbers as they are, others as texts."""
    return float(value) if isinstance(axis, FloatDistribution) else value_text(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
