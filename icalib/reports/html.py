"""One self-contained HTML page about a set of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from icalib.calibration.post_hoc import POST_HOC, post_hoc_tag
from icalib.core.errors import DataError, SettingError
from icalib.core.files import read_json, reading
from icalib.core.run_folder import RunFolder
from icalib.core.storage import push
from icalib.metrics.catalogue import find_metric
from icalib.metrics.pairs import PoolScores
from icalib.reports import charts, part_table
from icalib.reports.case_table import build_case_table
from icalib.reports.comparison import (
    SHIFT_COLUMNS,
    MethodRow,
    Result,
    best_labels,
    by_data,
    by_shift,
    format_fraction,
    format_value,
    method_rows,
    run_results,
    shift_results,
    shown_metrics,
)
from icalib.reports.guarantees import HEADINGS, HOW_TO_READ, promise_cells
from icalib.reports.page import figure_json, write_page
from icalib.reports.paired_tests import matrices, paired_tests
from icalib.reports.verdict import mean_interval, refusal, verdict_of

_POST_HOC_METRICS = ("ECE", "NLL")
"""Metrics that are shown after each post-hoc calibrator."""


def write_report(runs: Sequence[RunFolder], out: Path, title: str) -> Path:
    """Write a report of finished runs as one HTML file that needs no network access, and share it; returns `out`.

    A SettingError says that its name is of another format.
    """
    if out.suffix.lower() not in (".html", ".htm"):
        raise SettingError(f"{out}: a report is a page. Name a .html file.")
    results = run_results(runs)
    shifts = shift_results(runs)
    columns, shift_columns = shown_metrics(results), shown_metrics(shifts, SHIFT_COLUMNS)
    calibrators = [name for name in POST_HOC if any(post_hoc_tag("NLL", name) in one["test"] for one in results)]
    page = write_page(
        "report.html.j2",
        out,
        title=title,
        columns={name: find_metric(name) for name in columns},
        parts=[_data_part(name, group, columns, calibrators) for name, group in by_data(results).items()],
        has_rounds=any(run.round_folders for run in runs),
        shift_columns={name: find_metric(name) for name in shift_columns},
        shifts=[(title, rows := method_rows(group), _best(rows, shift_columns)) for title, group in by_shift(shifts)],
        post_hoc_metrics=_POST_HOC_METRICS,
        calibrators=calibrators,
        promise_note=HOW_TO_READ,
        part_headings=part_table.HEADINGS,
        promise_headings=("method", *HEADINGS),
    )
    push(page)
    return page


def _best(rows: Sequence[MethodRow], columns: Sequence[str]) -> dict[str, set[str]]:
    return {metric: best_labels(rows, metric) for metric in columns}


def _data_part(
    name: str, results: Sequence[Result], columns: Sequence[str], calibrators: Sequence[str]
) -> dict[str, Any]:
    rows = method_rows(results)
    runs = {row.label: row.runs for row in rows}
    every = [run for members in runs.values() for run in members]
    scores = {
        label: [PoolScores.from_predictions(run.predictions("test")) for run in members]
        for label, members in runs.items()
    }
    tests_missing = f"There is one method only{' beside candidates-only' * (len(runs) > 1)}."
    try:
        tests = paired_tests(runs)
        verdict = verdict_of(every, tests)
    except DataError as error:
        tests, verdict, tests_missing = [], refusal(error), str(error)
    methods = [
        _method_part(row, runs[row.label], columns, scores[row.label][0], index) for index, row in enumerate(rows)
    ]
    first = {label: members[0] for label, members in runs.items()}
    facts = [run for method in methods for run in method["runs"]]
    return {
        "name": name,
        "methods": methods,
        "best": _best(rows if verdict.compares else (), columns),
        "part_rows": part_table.part_rows(first),
        "commands": list(dict.fromkeys(run["command"] for run in facts)),
        "environments": list(dict.fromkeys(run["environment"] for run in facts)),
        "post_hoc": [(row, cells) for row in rows if (cells := _post_hoc(row, calibrators))],
        "risk_coverage": figure_json(charts.risk_coverage_figure(scores)),
        "promises": [(method["row"].label, *promise_cells(runs[method["row"].label][0])) for method in methods],
        "verdict": verdict,
        "tests": matrices(tests),
        "tests_missing": tests_missing,
        "cases": build_case_table({label: runs[label][0] for label in _case_order(rows, runs)}),
    }


def _post_hoc(row: MethodRow, calibrators: Sequence[str]) -> list[list[tuple[str, bool]]]:
    """Return each metric's names as it is and after each calibrator, and which is best; empty if unmeasured."""
    cells: list[list[tuple[str, bool]]] = []
    for metric in _POST_HOC_METRICS:
        names = (metric, *(post_hoc_tag(metric, calibrator) for calibrator in calibrators))
        shown = {name: round(mean, 3) for name in names if (mean := row.mean(name)) is not None}
        if len(shown) < 2:
            return []
        cells.append([(name, row.ranks and shown.get(name) == min(shown.values())) for name in names])
    return cells


def _case_order(rows: Sequence[MethodRow], runs: Mapping[str, Sequence[RunFolder]]) -> list[str]:
    """Methods that weigh intents first, then other self-training, then the rest; by MAP within each."""

    def key(row: MethodRow) -> tuple[bool, bool, float]:
        run = runs[row.label][0]
        has_gain = bool(np.isfinite(run.predictions("test")["gain"].to_numpy()).any())
        return has_gain, bool(run.round_folders), row.mean("MAP") or 0.0

    return [row.label for row in sorted(rows, key=key, reverse=True)]


def _method_part(
    row: MethodRow, runs: Sequence[RunFolder], columns: Sequence[str], scores: PoolScores, index: int
) -> dict[str, Any]:
    """Return tables of all runs of a method, and charts of the one with the lowest seed."""
    run = runs[0]
    return {
        "row": row,
        "intervals": {metric: _interval(runs, metric) for metric in columns},
        "shown_seed": row.results[0]["seed"],
        "reliability": figure_json(charts.reliability_figure(scores, index)),
        "settings": (run.path / "config.yaml").read_text(encoding="utf-8"),
        "runs": [_run_facts(member) for member in runs],
    }


def _interval(runs: Sequence[RunFolder], metric: str) -> str:
    interval = mean_interval(runs, metric)
    return "" if interval is None else f"{format_value(interval.low)}–{format_value(interval.high)}"


def _run_facts(run: RunFolder) -> dict[str, Any]:
    with reading(run.path):  # its files have what was written unless someone removed their digests
        config, provenance = run.config, read_json(run.path / "provenance.json")
        versions = {"icalib": provenance["icalib"], "Python": provenance["python"], **provenance["packages"]}
        with_versions = ", ".join(f"{name} {version}" for name, version in versions.items())
        machine = ", ".join(f"{name} {value}" for name, value in provenance["machine"].items())
        generated = f" Generated texts: {provenance['generated']['generator']}." if "generated" in provenance else ""
        digest = provenance["data_digest"][:16]
        sources = provenance.get("soft_labels", ())
        soft = [f" Soft labels of {source['num_pools']} pools: {source['annotator']}." for source in sources]
        return {
            "seed": config["seed"],
            "labelled": format_fraction(config["labelled"]),
            "num_pools": f"{run.result['test']['num_pools']:,.0f}",
            "command": provenance["command"],
            "started": provenance["started"][:16].replace("T", " "),
            "environment": f"With {with_versions}; machine: {machine}; data digest {digest}.{generated}{''.join(soft)}",
            "summaries": tuple(run.round_summaries()),
        }
