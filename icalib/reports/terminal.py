"""Tables for people, on standard error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from icalib.core.display import display
from icalib.core.run_folder import RunFolder
from icalib.metrics.catalogue import find_metric, metrics_among
from icalib.reports.comparison import (
    COLUMNS,
    MISSING,
    SHIFT_COLUMNS,
    MethodRow,
    Result,
    best_labels,
    by_data,
    by_shift,
    data_name,
    format_seconds,
    format_spread,
    format_value,
    method_label,
    method_rows,
    shown_metrics,
)
from icalib.reports.console import people_console, titled_table
from icalib.reports.label_curve import METRICS, LabelCurve
from icalib.reports.paired_tests import paired_tests
from icalib.reports.verdict import Verdict, verdict_of

if TYPE_CHECKING:
    from icalib.scoring.cost import Cost

_IMPORTANT = ("R@1", "MAP", "ECE", "NLL", "F1", "Brier", "AURC", "P", "R", "R@2", "R@5")
"""Metrics in the order in which a narrow terminal makes room for them."""
_BETTER = {"maximize": "higher", "minimize": "lower", None: ""}


def comparison_table(results: Sequence[Result], columns: Sequence[str] = COLUMNS) -> Table:
    """Rows by method (mean, with the deviation over seeds under it), best value of a column bold.

    Args:
        results: results on one pool set, as `--json` prints them.
        columns: metrics to show.
    """
    fractions = sorted({result["labelled"] for result in results})
    part = ", ".join(f"{fraction:.3g}" for fraction in fractions)
    return _method_table(f"{data_name(results[0])}, labelled fraction {part}", results, columns)


def _method_table(title: str, results: Sequence[Result], columns: Sequence[str]) -> Table:
    rows = method_rows(results)
    table = titled_table(title, _caption(rows, columns), gap=1)
    table.add_column("method", overflow="fold", min_width=8)
    table.add_column("seeds", justify="right", no_wrap=True)
    for metric in columns:
        table.add_column(find_metric(metric).name, justify="right", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    best = {metric: best_labels(rows, metric) for metric in columns}
    for row in rows:
        cells = [_cell(row, metric, row.label in best[metric]) for metric in columns]
        table.add_row(row.label, str(row.num_seeds), *cells, format_seconds(row.seconds))
    return table


def print_comparison(results: Sequence[Result], console: Console | None = None) -> None:
    """Print one comparison per pool set, with as many columns as fit; with --wide all of them, however wide."""
    console = console or people_console()
    for group in by_data(results).values():
        columns = shown_metrics(group)
        shown = columns if display().wide else _fitting(group, columns, console)
        table = comparison_table(group, shown)
        if len(shown) < len(columns):
            left_out = ", ".join(find_metric(name).name for name in columns if name not in shown)
            assert isinstance(table.caption, Text)
            table.caption.append(f"; --wide also shows {left_out}")
        if display().wide:
            _print_wide(table, console)
        else:
            console.print(table)


def _print_wide(table: Table, console: Console) -> None:
    """Print a table in full, wider than the terminal if need be; `Console.print` would cut it."""
    options = console.options.update_width(max(console.width, _width_of(table, console)))
    for line in console.render_lines(table, options, pad=False):
        console.print(Segments([*line, Segment.line()]), soft_wrap=True, end="")


def _fitting(results: Sequence[Result], columns: Sequence[str], console: Console) -> tuple[str, ...]:
    """The most important columns that fit beside each other, in the order of the table."""
    important = sorted(columns, key=lambda name: _IMPORTANT.index(name) if name in _IMPORTANT else len(_IMPORTANT))
    for number in range(len(columns), 1, -1):
        shown = tuple(name for name in columns if name in important[:number])
        if _width_of(comparison_table(results, shown), console) <= console.width:
            return shown
    return tuple(important[:1])


def _width_of(table: Table, console: Console) -> int:
    """The width of a table's columns in full, whatever its title and caption."""
    bare = copy(table)
    bare.title = bare.caption = None
    return console.measure(bare, options=console.options.update_width(10_000)).maximum


def print_runs(runs: Sequence[RunFolder], console: Console | None = None) -> None:
    """Print what finished runs say, and then their table, by pool set; the report has the paired tests."""
    console = console or people_console()
    by_pools: dict[str, list[RunFolder]] = {}
    for folder in runs:
        by_pools.setdefault(data_name(folder.result), []).append(folder)
    for group in by_pools.values():
        by_method: dict[str, list[RunFolder]] = {}
        for folder in group:
            by_method.setdefault(method_label(folder.result, [other.result for other in group]), []).append(folder)
        tests = paired_tests(by_method) if len(by_method) > 1 else []
        print_verdict(verdict_of(group, tests), console)
        print_comparison([folder.result for folder in group], console)


def print_verdict(verdict: Verdict, console: Console | None = None) -> None:
    """Print sentences, then warnings."""
    console = console or people_console()
    for sentence in verdict.sentences:
        console.print(Text(sentence))
    for warning in verdict.warnings:
        console.print(Text(f"Warning: {warning}", style="yellow"))


def print_label_curve(curve: LabelCurve, console: Console | None = None) -> None:
    """Print what each curve says, then metrics by method and number of labelled pools."""
    console = console or people_console()
    print_verdict(Verdict(tuple(curve.verdict(one) for one in curve.curves)), console)
    table = titled_table(
        f"What labels are worth on {curve.data}",
        f"{curve.split} pools; ± sd over seeds; untrained methods need no labels",
    )
    table.add_column("method", no_wrap=True)
    for name in ("labels", "seeds", *METRICS):
        table.add_column(name, justify="right", no_wrap=True)
    for one in curve.curves:
        for point in one.points:
            cells = [
                format_spread(point.mean(metric, curve.split), point.deviation(metric, curve.split))
                for metric in METRICS
            ]
            table.add_row(escape(one.label), str(point.num_labels), str(len(point.runs)), *cells)
    for run in curve.lines:
        cells = [format_value(run.result[curve.split].get(metric)) for metric in METRICS]
        table.add_row(escape(str(run.result["method"])), MISSING, "1", *cells, style="dim")
    console.print(table)


def print_shifts(results: Sequence[Result], console: Console | None = None) -> None:
    """Print one table for each pool set that runs were evaluated on and not trained on."""
    for title, group in by_shift(results):
        (console or people_console()).print(_method_table(title, group, shown_metrics(group, SHIFT_COLUMNS)))


def print_shift(result: Result, own: Result, console: Console | None = None) -> None:
    """Print one run's metrics on other pools beside those on its own test pools."""
    ((title, _),) = by_shift([result])
    console = console or people_console()
    console.print(Text(f"{result['method']} {title}", style="bold"), soft_wrap=True)
    console.print(_metric_table("", {data_name(result): result["test"], data_name(own): own["test"]}))


def print_costs(costs: Sequence[Cost], console: Console | None = None) -> None:
    """Print size and scoring time of some methods."""
    table = titled_table(
        f"Scoring {costs[0].num_pairs} pairs, one process, one thread",
        "ratio: time over that of the first, median (minimum to maximum) over the rounds; "
        "fixed: frozen backbone, random features, posterior and support set",
    )
    table.add_column("method", no_wrap=True)
    for name in ("learnt", "fixed", "time", "a pair", "ratio"):
        table.add_column(name, justify="right", no_wrap=True)
    for cost in costs:
        table.add_row(
            escape(cost.label),
            f"{cost.num_parameters / 1e6:.2f} M",
            f"{cost.num_fixed / 1e6:.2f} M",
            f"{cost.seconds:.2f} s",
            f"{cost.milliseconds_per_pair:.2f} ms",
            f"{cost.ratio:.2f} ({cost.ratio_low:.2f}–{cost.ratio_high:.2f})",
        )
    (console or people_console()).print(table)


def print_result(result: Result, console: Console | None = None) -> None:
    """Print the metrics of one run on validation and test, and its seconds by stage."""
    console = console or people_console()
    title = (
        f"{result['method']} on {data_name(result)}, labelled fraction {result['labelled']:.3g}, seed {result['seed']}"
    )
    console.print(_metric_table(title, {split: result[split] for split in ("test", "validation")}))
    stages = {name: seconds for name, seconds in result["seconds"].items() if name != "total"}
    spent = ", ".join(f"{name} {format_seconds(seconds)}" for name, seconds in stages.items())
    console.print(f"{format_seconds(result['seconds']['total'])} in total ({spent})", style="dim", soft_wrap=True)
    console.print(result["run"], style="dim", soft_wrap=True)


def _metric_table(title: str, columns: Mapping[str, Mapping[str, float]]) -> Table:
    """Rows by metric; the first column is bold."""
    table = titled_table(title)
    table.add_column("metric", no_wrap=True)
    first = next(iter(columns.values()))
    for index, name in enumerate(columns):
        table.add_column(escape(name), justify="right", style="dim" if index else "bold")
    table.add_column("better", style="dim")
    for key, metric in metrics_among(first).items():
        if key != "num_pools":
            values = (format_value(values.get(key)) for values in columns.values())
            table.add_row(metric.name, *values, _BETTER[metric.direction])
    return table


def _caption(rows: Sequence[MethodRow], columns: Sequence[str]) -> str:
    metrics = [find_metric(name) for name in columns]
    lower = ", ".join(metric.name for metric in metrics if metric.direction == "minimize")
    parts = ["test pools", "± sd over seeds" if any(row.num_seeds > 1 for row in rows) else "one seed"]
    parts += [f"lower is better: {lower}"] if lower else []
    return "; ".join([*parts, "bold: best of those that rank better than chance"] if len(rows) > 1 else parts)


def _cell(row: MethodRow, metric: str, is_best: bool) -> Text:
    cell = Text(format_value(row.mean(metric)), style="bold" if is_best else "")
    deviation = row.deviation(metric)
    if deviation is not None:
        cell.append(f"\n±{deviation:.3f}".replace("0.", ".", 1), style="dim not bold")
    return cell
