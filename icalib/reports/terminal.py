"""Tables for people, on standard error."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from icalib.core.check import Check, Status
from icalib.core.cluster_job import ClusterJob, JobState
from icalib.core.run_folder import RunFolder
from icalib.core.text import printable
from icalib.metrics.catalogue import find_metric, metrics_among
from icalib.reports.comparison import (
    SHIFT_COLUMNS,
    MethodRow,
    Result,
    best_labels,
    by_data,
    by_shift,
    data_name,
    format_seconds,
    format_value,
    heading,
    method_rows,
    run_results,
    settings_of,
    shown_metrics,
)
from icalib.reports.console import people_console, text_table
from icalib.reports.label_curve import LabelCurve
from icalib.reports.part_table import HEADINGS, part_rows
from icalib.reports.verdict import Verdict, verdict_of

if TYPE_CHECKING:
    from icalib.core.stage_cache import Stage
    from icalib.labelling.judged import JudgedMetrics
    from icalib.metrics.judged import Estimate
    from icalib.score_files.calibrator import Calibrator

_IMPORTANT = ("R@1", "MAP", "ECE", "ECE_top1", "NLL", "F1", "Brier", "AURC", "R@2", "R@5")
"""Metrics in the order in which a narrow terminal makes room for them."""
_FEW_QUERIES = 30
_BETTER = {"maximize": "higher", "minimize": "lower", None: ""}


def _method_table(title: str, results: Sequence[Result], columns: Sequence[str], *, compares: bool = True) -> Table:
    """Rows by method (mean, with the deviation over seeds under it), best value of a column bold if they compare."""
    rows = method_rows(results)
    best = {metric: best_labels(rows if compares else (), metric) for metric in columns}
    cells = (
        (
            row.label,
            str(row.num_seeds),
            *(_cell(row, metric, row.label in best[metric]) for metric in columns),
            format_seconds(row.seconds),
        )
        for row in rows
    )
    headings = (
        Column("method", overflow="fold", min_width=8),
        "seeds",
        *(find_metric(name).name for name in columns),
        "time",
    )
    return text_table(headings, cells, title=title, caption=_caption(rows, columns, compares), gap=1)


def _print_group(data: str, results: Sequence[Result], console: Console, compares: bool) -> None:
    fractions = ", ".join(f"{fraction:.3g}" for fraction in sorted({result["labelled"] for result in results}))
    columns = shown_metrics(results)
    shown = _fitting(results, columns, console)
    table = _method_table(f"{data}, labelled fraction {fractions}", results, shown, compares=compares)
    if len(shown) < len(columns):
        left_out = ", ".join(find_metric(name).name for name in columns if name not in shown)
        assert isinstance(table.caption, Text)
        table.caption.append(f"; the report also has {left_out}")
    console.print(table)


def _fitting(results: Sequence[Result], columns: Sequence[str], console: Console) -> tuple[str, ...]:
    """The most important columns that fit beside each other, in the order of the table."""
    important = sorted(columns, key=lambda name: _IMPORTANT.index(name) if name in _IMPORTANT else len(_IMPORTANT))
    for number in range(len(columns), 1, -1):
        shown = tuple(name for name in columns if name in important[:number])
        whole = console.options.update_width(10_000)
        if console.measure(_method_table("", results, shown), options=whole).maximum <= console.width:
            return shown
    return tuple(important[:1])


def print_runs(runs: Sequence[RunFolder], console: Console | None = None) -> None:
    """Print what finished runs say, and then their table, by pool set; the report has the paired tests."""
    console = console or people_console()
    for name, results in by_data(run_results(runs)).items():
        rows = method_rows(results)
        verdict = verdict_of([run for row in rows for run in row.runs])
        print_verdict(verdict, console)
        _print_group(name, results, console, verdict.compares)
        print_parts({row.label: row.runs[0] for row in rows}, console)


def print_verdict(verdict: Verdict, console: Console | None = None) -> None:
    """Print sentences, then warnings."""
    console = console or people_console()
    for sentence in verdict.sentences:
        console.print(Text(sentence))
    for warning in verdict.warnings:
        console.print(Text(f"Warning: {warning}", style="yellow"))


def print_parts(runs: Mapping[str, RunFolder], console: Console) -> None:
    """Print what each part of the rankers gave, where one is a sum; `runs` by label."""
    summed = {label: run for label, run in runs.items() if any(fitted["recall"] is not None for fitted in run.parts)}
    if summed:
        caption = "validation; each part alone, and their sum (its weight is b)"
        console.print(text_table(HEADINGS, part_rows(summed), num_texts=2, title="Parts", caption=caption))


def print_label_curve(curve: LabelCurve, console: Console | None = None) -> None:
    """Print what each curve says, then metrics by method and number of labelled pools."""
    console = console or people_console()
    print_verdict(Verdict(tuple(curve.verdicts.values())), console)
    headings, rows = curve.table()
    several = any(len(point.runs) > 1 for points in curve.curves.values() for point in points)
    caption = f"{curve.split} pools; {_spread(several)}; untrained methods need no labels"
    console.print(text_table(headings, rows, title=curve.title, caption=caption))


def print_shifts(results: Sequence[Result], runs: Sequence[RunFolder], console: Console | None = None) -> None:
    """Print one table for each pool set that runs were evaluated on and not trained on; `results` are of `runs`."""
    settings = {run.name: settings_of(run) for run in runs}
    named = [{**result, "settings": settings[PurePath(result["run"]).name]} for result in results]
    for title, group in by_shift(named):
        (console or people_console()).print(_method_table(title, group, shown_metrics(group, SHIFT_COLUMNS)))


def print_shift(result: Result, own: Result) -> None:
    """Print one run's metrics on other pools beside those on its own test pools."""
    ((title, _),) = by_shift([result])
    console = people_console()
    num_pools = int(result["test"]["num_pools"])
    console.print(Text(f"{result['method']} {title}, {num_pools} pools", style="bold"), soft_wrap=True)
    # the pools may have the same name, e.g. where only the limit is another
    console.print(_metric_table("", {data_name(result): result["test"], f"{data_name(own)} (own)": own["test"]}))


def print_result(result: Result, console: Console | None = None) -> None:
    """Print the metrics of one run on validation and test, and the seconds of all stages and the longest three."""
    console = console or people_console()
    title = (
        f"{result['method']} on {data_name(result)}, labelled fraction {result['labelled']:.3g}, seed {result['seed']}"
    )
    console.print(_metric_table(title, {split: result[split] for split in ("test", "validation")}))
    stages = sorted(result["seconds"].items(), key=lambda stage: -stage[1])
    longest = [f"{name} {format_seconds(seconds)}" for name, seconds in stages if name != "total"][:3]
    spent = f"{format_seconds(result['seconds']['total'])} in total; longest: {', '.join(longest)}"
    console.print(spent, style="dim", soft_wrap=True)
    console.print(result["run"].removeprefix(f"{Path.cwd()}/"), style="dim", soft_wrap=True)


def _metric_table(title: str, columns: Mapping[str, Mapping[str, float]]) -> Table:
    rows: list[list[str | Text]] = []
    for key, metric in metrics_among(next(iter(columns.values()))).items():
        if key != "num_pools":
            first, *others = (format_value(values.get(key)) for values in columns.values())
            better = Text(_BETTER[metric.direction], style="dim")
            rows.append(
                [metric.name, Text(first, style="bold"), *(Text(other, style="dim") for other in others), better]
            )
    return text_table(("metric", *columns, Column("better")), rows, title=title)


def _caption(rows: Sequence[MethodRow], columns: Sequence[str], compares: bool) -> str:
    metrics = [find_metric(name) for name in columns]
    lower = ", ".join(metric.name for metric in metrics if metric.direction == "minimize")
    parts = ["test pools", _spread(any(row.num_seeds > 1 for row in rows))]
    parts += [f"lower is better: {lower}"] if lower else []
    parts += ["bold: best of those that rank better than chance"] if len(rows) > 1 and compares else []
    return "; ".join(parts)


def _spread(several_seeds: bool) -> str:
    return "± sd over seeds" if several_seeds else "one seed"


def _cell(row: MethodRow, metric: str, is_best: bool) -> Text:
    cell = Text(format_value(row.mean(metric)), style="bold" if is_best else "")
    deviation = row.deviation(metric)
    if deviation is not None:
        cell.append("\n±" + f"{deviation:.3f}".removeprefix("0"), style="dim not bold")
    return cell


def print_calibration(calibrator: Calibrator, console: Console | None = None) -> None:
    """Print the metrics of each method on the queries that fitted nothing, and what was chosen."""
    from icalib.score_files.calibrator import METRICS, UNCHANGED

    console = console or people_console()
    rows: list[list[Text]] = []
    for method, metrics in calibrator.metrics.items():
        measured = [metrics[name] for name in METRICS]
        values = [f"{format_value(m.value)}\n{format_value(m.low)}–{format_value(m.high)}" for m in measured]
        cells = ["before" if method == UNCHANGED else method, *values]
        rows.append([Text(cell, style="bold" if method == calibrator.method else "") for cell in cells])
    title = f"{calibrator.num_measured} queries that fitted nothing ({calibrator.num_fitted} others did)"
    columns = ("calibrator", *map(heading, METRICS))
    caption = "95 % intervals over queries below"
    if calibrator.num_measured < _FEW_QUERIES:
        caption += "; of so few queries those of ECE are too short"
    console.print(text_table(columns, rows, title=title, caption=caption))
    read_as = "probabilities" if calibrator.scale == "probability" else "logits: before, their sigmoid"
    chosen = "none is better, so scores stay as they are" if calibrator.method == UNCHANGED else calibrator.method
    console.print(Text(f"scores are read as {read_as}"))
    console.print(Text(f"chosen by cross-validation: {chosen}"))
    for note in calibrator.notes:
        console.print(Text(f"note: {note}"))


def print_judged(found: JudgedMetrics) -> None:
    """Print the first metric by few judgements and a judge as a sentence, warnings, and the table."""
    name, first = next(iter(found.metrics.items()))
    interval = f"(95 % interval {first.estimate.low:.3f}–{first.estimate.high:.3f})"
    sentence = f"{name} {first.estimate.value:.3f} {interval} from {found.num_judged} judged pools"
    if first.helps:
        sentence += (
            f" and a judge of {found.num_pools:,}; by the {found.num_judged} alone {_estimate_text(first.alone)}"
        )
    else:
        sentence += f"; the judge of {found.num_pools:,} doesn't help (correlation {first.correlation:.2f})"
    print_verdict(Verdict((f"{sentence}.",), found.warnings))
    rows = [
        (
            name,
            _estimate_text(one.estimate),
            _estimate_text(one.alone),
            f"{one.correlation:.2f}",
            f"{one.worth:.0f}" if one.helps else "doesn't help",
        )
        for name, one in found.metrics.items()
    ]
    headings = ("metric", "with the judge", "judged pools alone", "correlation", "worth judged pools")
    caption = f"{data_name(vars(found))}, {found.split}; 95 % intervals, if the judged pools are a random sample of all"
    people_console().print(text_table(headings, rows, caption=caption))


def _estimate_text(found: Estimate) -> str:
    return f"{found.value:.3f} ({found.low:.3f}–{found.high:.3f})"


def print_stages(stages: Sequence[Stage], console: Console | None = None) -> None:
    """Print the stages, those of the same name in one row."""
    groups: dict[str, list[Stage]] = {}
    for stage in stages:
        groups.setdefault(str(stage.name), []).append(stage)
    table = text_table(("stage", "state"), [(name, _state(group)) for name, group in groups.items()], num_texts=2)
    table.add_section()
    table.add_row("all", _state(stages))
    (console or people_console()).print(table)


def _state(stages: Sequence[Stage]) -> str:
    cached = sum(stage.reused for stage in stages)
    if len(stages) == 1:
        return "cached" if cached else "to compute"
    return f"{cached} of {len(stages)} cached"


_MARKS: Mapping[Status, tuple[str, str]] = {"ok": ("ok", "green"), "warn": ("warn", "yellow"), "fail": ("FAIL", "red")}
_STYLES: Mapping[JobState, str] = {
    "pending": "yellow",
    "running": "cyan",
    "succeeded": "green",
    "failed": "red",
    "stopped": "dim",
}


def print_check(check: Check, console: Console) -> None:
    """Print the result of a check of `icalib doctor`, and what to do about it."""
    row = Table.grid(Column(width=4), Column(width=16), Column(overflow="fold"), padding=(0, 2, 0, 0))
    row.add_row(Text(*_MARKS[check.status]), Text(check.name), Text(check.found))
    if check.cure:
        row.add_row("", "", Text(f"→ {check.cure}", style="bold" if check.status == "fail" else ""))
    console.print(row)


def print_jobs(jobs: Sequence[ClusterJob], address: str) -> None:
    """Print one line per job: its state, since when, and how long it has taken."""
    command = Column("command", no_wrap=True, overflow="ellipsis", ratio=1)
    rows = [
        (
            Text(printable(job.id)),
            Text(job.state, _STYLES[job.state]),
            datetime.fromtimestamp(job.started).strftime("%Y-%m-%d %H:%M"),
            format_seconds((job.ended or time.time()) - job.started),
            Text(printable(job.command)),
        )
        for job in jobs
    ]
    table = text_table(("id", "state", "since", "time", command), rows, title=f"Jobs at {address}", num_texts=3)
    table.expand = True
    people_console().print(table)
