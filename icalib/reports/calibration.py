"""What calibrating another ranker's scores has brought: a table for terminals."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from icalib.external.calibrator import METRICS, UNCHANGED, Calibrator, Measured
from icalib.reports.comparison import format_value, heading
from icalib.reports.console import people_console, text_table


def print_calibration(calibrator: Calibrator, console: Console | None = None) -> None:
    """Print the metrics of each method on the queries that fitted nothing, and what was chosen."""
    console = console or people_console()
    rows: list[list[Text]] = []
    for method, metrics in calibrator.metrics.items():
        cells = ["before" if method == UNCHANGED else method, *(_cell(metrics[name]) for name in METRICS)]
        rows.append([Text(cell, style="bold" if method == calibrator.method else "") for cell in cells])
    title = f"{calibrator.num_measured} queries that fitted nothing ({calibrator.num_fitted} others did)"
    columns = ("calibrator", *map(heading, METRICS))
    console.print(text_table(columns, rows, title=title, caption="95 % intervals over queries below"))
    read_as = "probabilities" if calibrator.scale == "probability" else "logits: before, their sigmoid"
    chosen = "none is better, so scores stay as they are" if calibrator.method == UNCHANGED else calibrator.method
    console.print(Text(f"scores are read as {read_as}"))
    console.print(Text(f"chosen by cross-validation: {chosen}"))


def _cell(measured: Measured) -> str:
    return f"{format_value(measured.value)}\n{format_value(measured.low)}–{format_value(measured.high)}"
