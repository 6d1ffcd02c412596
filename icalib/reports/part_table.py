"""What each part of a ranker gave: weight, R@1 and NLL alone and in the sum, on validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from icalib.core.run_folder import RunFolder
from icalib.reports.comparison import format_value

HEADINGS = ("method", "part", "weight", "R@1", "NLL")


def part_rows(runs: Mapping[str, RunFolder]) -> list[tuple[str, ...]]:
    """Return the rows of each run's parts and of their sum; a part that isn't run has no weight."""
    rows: list[tuple[str, ...]] = []
    for label, run in runs.items():
        for fitted in run.parts:
            if fitted["recall"] is None:  # one part alone, with w = 1 and b = 0
                rows.append((label, fitted["parts"][0]["name"], "1", "–", "–"))
                continue
            for part in fitted["parts"]:
                weight = f"{part['weight']:.3g}" if part["weight"] else "not run"
                rows.append((label, part["name"], weight, format_value(part["recall"]), format_value(part["nll"])))
            rows.append(
                (label, "sum", f"{fitted['offset']:+.3g}", *map(format_value, (fitted["recall"], fitted["nll"])))
            )
    return rows


def part_figure(runs: Mapping[str, RunFolder]) -> go.Figure | None:
    """Return bars of R@1 on validation, of each part alone and of the sum; None without any sum."""
    found: dict[str, dict[str, float]] = {}
    for label, run in runs.items():
        for fitted in run.parts[:1]:
            if fitted["recall"] is not None:
                for name, recall in _recalls(fitted["parts"], fitted["recall"]):
                    found.setdefault(name, {})[label] = recall
    if not found:
        return None
    figure = go.Figure()
    for name in sorted(found, key=("similarity", "intent", "cross", "sum").index):
        values = found[name]
        figure.add_bar(x=list(values), y=list(values.values()), name=name)
    figure.update_yaxes(title_text="R@1 on validation", rangemode="tozero")
    figure.update_layout(height=340, barmode="group")
    return figure


def _recalls(parts: Sequence[Mapping[str, float | str]], of_sum: float) -> list[tuple[str, float]]:
    return [*((str(part["name"]), float(part["recall"])) for part in parts), ("sum", of_sum)]
