"""The pictures of results: docs/images/parts.svg and docs/images/risk-coverage.svg, drawn from docs/results/*.yaml.

make results
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from results import TABLES, read_table

IMAGES = Path(__file__).resolve().parent / "images"
INK, GRID = "#1c2733", "#d7dce2"
STEPS = {
    "dialogues alone": ("`dual-encoder` (no labels, two pre-trainings)", "#9aa5b1"),
    "sentence-transformers": ("SentenceTransformer, dialogues, then labels", "#c7a4a4"),
    "labels (bert)": ("`bert`", "#5b8def"),
    "… + self-training": ("`tsst`", "#2f6f9f"),
    "… + intents": ("`icast-teacher`", "#e0912f"),
    "… + both (icast)": ("`icast`", "#2e9e6b"),
}
"""What is learnt from, with the row that has it and its colour."""
CORPORA = ("SGD", "MultiWOZ")
CURVES = {
    "bert": "labels (bert)",
    "tsst": "… + self-training",
    "icast-teacher": "… + intents",
    "icast": "… + both (icast)",
}


def main() -> None:
    """Draw both; the same tables give the same bytes."""
    mpl.rcParams.update(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "icalib",
            "font.family": "sans-serif",
            "font.sans-serif": ["Helvetica", "Arial", "DejaVu Sans"],
            "font.size": 11,
            "text.color": INK,
            "axes.labelcolor": INK,
            "axes.edgecolor": GRID,
            "xtick.color": INK,
            "ytick.color": INK,
        }
    )
    _save(_parts(), "parts.svg")
    _save(_risk_coverage(), "risk-coverage.svg")


def _parts() -> Figure:
    """R@1 by what is learnt from, a panel a corpus; bars are the standard deviation over seeds."""
    figure = Figure(figsize=(8.6, 3.2), layout="constrained")
    panels = figure.subplots(1, len(CORPORA), sharex=True, sharey=True)
    table = read_table(TABLES / "peers-labels.yaml")
    for axes, title in zip(panels, CORPORA, strict=True):
        rows = {row["method"]: row[f"{title}, 180"] for row in table.rows}
        for place, (method, colour) in enumerate(STEPS.values()):
            mean, deviation = rows[method]
            axes.barh(place, mean, xerr=deviation, color=colour, height=0.68, error_kw={"ecolor": INK})
            axes.text(0.01, place, f"{mean:.3f}", va="center", color="white", fontweight="bold")
        axes.set_title(title, loc="left", fontweight="bold", fontsize=11)
        axes.set_yticks(range(len(STEPS)), list(STEPS))
        axes.set_xlim(0, 0.85)
        _plain(axes, "x")
    panels[0].invert_yaxis()
    figure.supxlabel("right answer ranked first among ten, with 180 labelled pools", fontsize=11)
    return figure


def _risk_coverage() -> Figure:
    """Wrong answers against the fraction of questions that is answered, the surest first."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    table = read_table(TABLES / "risk-coverage.yaml")
    answered = [_percentage(column) for column in table.columns]
    ends: list[tuple[float, str]] = []
    for row in table.rows:
        wrong = [_percentage(row[column]) for column in table.columns]
        colour = STEPS[CURVES[row["method"]]][1]
        axes.plot(answered, wrong, color=colour, linewidth=2.2, marker="o", markersize=4)
        ends.append((wrong[-1], row["method"]))
    lowest = -1.0
    for wrong_in_all, method in sorted(ends):
        lowest = max(wrong_in_all, lowest + 1.8)  # names of close curves don't overlap
        colour = STEPS[CURVES[method]][1]
        axes.annotate(method, (102, lowest), va="center", color=colour, fontweight="bold")
    axes.set_xlim(5, 122)
    axes.set_xticks(range(20, 101, 20), [f"{tick} %" for tick in range(20, 101, 20)])
    axes.set_ylim(0, 32)
    axes.set_yticks(range(0, 31, 10), [f"{tick} %" for tick in range(0, 31, 10)])
    axes.set_xlabel("questions answered, the surest first")
    axes.set_ylabel("wrong answers")
    _plain(axes, "y")
    return figure


def _plain(axes: Axes, lines: Any) -> None:
    axes.grid(axis=lines, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _percentage(text: str) -> float:
    return float(text.removesuffix("%"))


def _save(figure: Figure, name: str) -> None:
    figure.savefig(IMAGES / name, facecolor="white", metadata={"Date": None})


if __name__ == "__main__":
    main()
