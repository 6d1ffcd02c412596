"""A reproduced table as one self-contained HTML page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import final

import plotly.graph_objects as go
from markupsafe import Markup
from plotly.subplots import make_subplots

from icalib.core.files import read_json
from icalib.core.run_folder import RunFolder
from icalib.reports.charts import NEUTRAL, colour
from icalib.reports.comparison import run_command
from icalib.reports.page import figure_json, write_page
from icalib.reports.paper_table import Reproduction, blocks, spread_note


@final
@dataclass(frozen=True)
class _Picture:
    """What it shows, and the figure as JSON."""

    title: str
    json: Markup


def write_reproduced(reproduction: Reproduction, out: Path) -> Path:
    """Write the page; returns `out`.

    Raises:
        StorageError: the disk is full or can't be written.
    """
    finished = [one for one in reproduction.rows if one.runs]
    return write_page(
        "paper_table.html.j2",
        out,
        title=reproduction.table.title,
        table=reproduction.table,
        notice=reproduction.notice,
        legend=[(letter, mark) for mark, letter in reproduction.legend.items()],
        spread_note=spread_note(reproduction.table),
        command=reproduction.command,
        blocks=blocks(reproduction),
        curves=_curves(reproduction) if reproduction.table.kind == "curve" else [],
        runs=[(run.name, read_json(run.path / "provenance.json")["started"][:16], _command(run))
              for one in finished for run in one.runs],
    )  # fmt: skip


def _command(run: RunFolder) -> str:
    """The command that runs this one again."""
    path = run.path.resolve()
    return run_command(path / "config.yaml", path.parents[1])


def _curves(reproduction: Reproduction) -> list[_Picture]:
    return [
        _Picture(
            f"{metric} over {reproduction.table.x_label}, {fraction:.3g} labelled",
            figure_json(_curve(reproduction, fraction, metric)),
        )
        for fraction in reproduction.fractions
        for metric in reproduction.table.metrics
    ]


def _curve(reproduction: Reproduction, fraction: float, metric: str) -> go.Figure:
    """A metric over x, mean with the deviation over seeds; bars count the selected intents if the table has them."""
    table = reproduction.table
    rows = [one for one in reproduction.rows if one.labelled == fraction and one.runs]
    scale = 100 if table.percent else 1
    values = [[scale * run.result["test"][metric] for run in one.runs] for one in rows]
    figure = make_subplots(specs=[[{"secondary_y": True}]])
    positions = [str(one.row.x) for one in rows]
    if table.bars is not None:
        counts = [fmean(_selected_intents(run) for run in one.runs) for one in rows]
        figure.add_bar(x=positions, y=counts, name="selected intents", marker_color=NEUTRAL, opacity=0.45, width=0.4)
        figure.update_yaxes(title_text="selected intents", side="right", showgrid=False, rangemode="tozero")
    figure.add_scatter(
        x=positions,
        y=[fmean(one) for one in values],
        error_y={"array": [stdev(one) if len(one) > 1 else 0.0 for one in values], "thickness": 1.4},
        name=metric,
        mode="lines+markers",
        line={"color": colour(0), "width": 2.5},
        marker={"size": 8},
        secondary_y=True,
    )
    # The axis that is drawn last is on top, so the line has the second axis, which is on the left.
    figure.update_yaxes(
        title_text=metric + (" %" if table.percent else ""), side="left", tickmode="auto", secondary_y=True
    )
    figure.update_xaxes(title_text=table.x_label, type="category")
    figure.update_layout(height=380, showlegend=table.bars is not None)
    return figure


def _selected_intents(run: RunFolder) -> float:
    """Pairs that were pseudo-labelled with predicted intents, mean over the rounds."""
    summaries = run.round_summaries()
    return fmean(one.num_pairs_with_intents for one in summaries) if summaries else 0.0
