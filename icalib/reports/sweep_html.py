"""One self-contained HTML page about a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import plotly.graph_objects as go
from markupsafe import Markup

from icalib.metrics.catalogue import find_metric
from icalib.reports.comparison import ARROWS, format_share
from icalib.reports.page import figure_json, write_page
from icalib.reports.sweep_figures import pictures
from icalib.reports.sweep_lead import lead_text, ties_text
from icalib.reports.sweep_table import NUM_BEST, states_text, trial_table, winners_command, winners_metrics
from icalib.sweeps.folder import SweepFolder, SweepSettings
from icalib.sweeps.ties import ties
from icalib.sweeps.trials import Trial, ranked, settings_text


def write_sweep_report(folder: SweepFolder, trials: Sequence[Trial]) -> Path:
    """Write report.html of a sweep, finished or not: one file that needs no network access; returns its path.

    Raises:
        DamagedFileError: a file of the sweep can't be read.
        StorageError: the disk is full or can't be written.
    """
    settings = folder.settings
    order, tied = ranked(trials, settings.metrics), ties(folder, trials)
    headings, rows = trial_table(order[:NUM_BEST], settings.metrics)
    best = folder.best()
    return write_page(
        "sweep.html.j2",
        folder.path / "report.html",
        title=f"Sweep of {settings.space} on {settings.data.name}",
        facts=_facts(settings),
        command=settings.command,
        states=states_text(trials),
        num_seeds=settings.seeds,
        num_complete=len(order),
        headings=headings,
        rows=rows,
        best=best,
        best_settings=settings_text(best.params) if best else "",
        best_metrics=winners_metrics(best, settings.metrics) if best else (),
        best_command=winners_command(folder, best) if best else "",
        best_config=folder.best_config() if best else "",
        lead=lead_text(order, settings.metrics, tied),
        unchanged=ties_text(tied, len(order)),
        figures=[(picture, _json(picture.figure)) for picture in pictures(order, settings.metrics)],
        unfinished=[trial for trial in trials if trial.state in ("failed", "pruned")],
        settings_text=settings_text,
        cost=_cost(trials),
    )


def _json(figure: go.Figure) -> Markup:
    """A figure that the page names, on white even on a dark page: Optuna's best trials are dark blue."""
    figure.update_layout(title=None, plot_bgcolor="white", paper_bgcolor="white", font_color="#1c2026")
    for update in (figure.update_xaxes, figure.update_yaxes):
        update(gridcolor="#e2e5ea", zerolinecolor="#e2e5ea", title_font_color="#5d6572")
        update(selector={"type": "log"}, dtick=1, exponentformat="power")
    return figure_json(figure)


def _facts(settings: SweepSettings) -> Mapping[str, str]:
    goals = [f"{find_metric(name).title}{ARROWS[direction]}" for name, direction in settings.metrics.items()]
    facts = {
        "space": settings.space,
        "method": settings.method,
        "data": str(settings.data),
        "labelled": format_share(float(settings.labelled)),
        "backbone": settings.backbone,
        "sampler": settings.sampler,
        "pruner": settings.pruner,
        "seeds": str(settings.seeds),
        "tuned, on validation": ", ".join(goals),
        "at most, pools": ", ".join(f"{split} {number}" for split, number in settings.limit.items()),
        "changed": settings_text(settings.settings, {name: name for name in settings.settings}),
    }
    return {name: fact for name, fact in facts.items() if fact}


def _cost(trials: Sequence[Trial]) -> dict[str, float]:
    """Seconds that all stages of all trials took, and that computing the reused ones had taken; how many there were."""
    stages = [stage for trial in trials for run in trial.runs for stage in run.stages]
    reused = [stage["seconds"] for stage in stages if stage["reused"]]
    computed = [stage["seconds"] for stage in stages if not stage["reused"]]
    return {
        "num_computed": len(computed),
        "seconds": sum(computed),
        "num_reused": len(reused),
        "seconds_saved": sum(reused),
    }
