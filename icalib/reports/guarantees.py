"""What a run can promise about its answers, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from icalib.core.run_folder import RunFolder
from icalib.metrics.pairs import PoolScores
from icalib.metrics.risk_control import RiskControl
from icalib.pipeline.guarantees import CONFIDENCE, controls, held_elsewhere
from icalib.reports.comparison import MISSING, format_share, format_value
from icalib.reports.console import people_console, titled_table
from icalib.reports.verdict import listed

HOW_TO_READ = (
    f"with {CONFIDENCE:.0%} confidence no more answers are wrong than allowed, for questions like those tested on "
    "(Learn then Test); `icalib predict --max-error` answers by these thresholds"
)


@final
@dataclass(frozen=True)
class Promise:
    """One row of the table, as text."""

    allowed: str
    threshold: str
    answered: str
    measured: str
    """How many of the answers are wrong, in the pools that it was tested on."""


def promises(found: Sequence[RiskControl]) -> list[Promise]:
    """Return those that can be kept, by the fraction of wrong answers that is allowed."""
    return [
        Promise(
            allowed=_percent(one),
            threshold=format_value(one.threshold),
            answered=format_share(one.coverage),
            measured=f"{one.num_wrong} of {one.num_answered}",
        )
        for one in found
        if one.threshold is not None
    ]


def refusals(found: Mapping[str, Sequence[RiskControl]]) -> list[str]:
    """Return why promises can't be kept: one line for all methods for which it is the same.

    Args:
        found: what each method can promise, by its name.
    """
    methods: dict[str, list[str]] = {}
    for label, own in found.items():
        if reason := _refusal(own):
            methods.setdefault(reason, []).append(label)
    return [f"No promise for {listed(labels)}: {reason}." for reason, labels in methods.items()]


def print_promises(run: RunFolder, console: Console | None = None) -> None:
    """Print what the run can promise, and why not more."""
    console = console or people_console()
    found = controls(run)
    table = _table("What can be promised", HOW_TO_READ, ("threshold", "answered", "wrong when tested"))
    for row in promises(found):
        table.add_row(row.allowed, row.threshold, row.answered, row.measured)
    if table.rows:
        console.print(table)
    if reason := _refusal(found):
        console.print(Text(f"No promise: {reason}."))


def print_promises_elsewhere(run: RunFolder, data: str, console: Console | None = None) -> None:
    """Print what became of the run's promises on other pools that it was evaluated on."""
    found = controls(run)
    scores = PoolScores.from_predictions(run.shift_predictions(data))
    table = _table(
        f"The run's promises on {data}",
        f"measured on {scores.num_pools} pools; the promises are about questions like the run's own pools",
        ("threshold", "answered", "wrong"),
    )
    for one, (answered, wrong) in zip(found, held_elsewhere(found, scores), strict=True):
        if one.threshold is not None:
            cells = (format_share(answered), format_share(wrong) if answered else MISSING)
            table.add_row(f"{one.max_error:.0%}", format_value(one.threshold), *cells)
    if table.rows:
        (console or people_console()).print(table)


def _refusal(found: Sequence[RiskControl]) -> str:
    """Return why some promises can't be kept; "" if all can."""
    refused = [one for one in found if one.threshold is None]
    needed = [f"about {one.num_needed:,} for {_percent(one)}" for one in refused if one.num_needed is not None]
    hopeless = [_percent(one) for one in refused if one.num_needed is None]
    reasons = [f"{refused[0].num_pools} pools are too few, {listed(needed)} would do"] if needed else []
    reasons += [f"at {listed(hopeless)} even the most confident answers are wrong too often"] if hopeless else []
    return "; ".join(reasons)


def _percent(found: RiskControl) -> str:
    return f"{100 * found.max_error:g}%"


def _table(title: str, caption: str, columns: tuple[str, ...]) -> Table:
    table = titled_table(title, caption)
    table.add_column("allowed", justify="right", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right")
    return table
