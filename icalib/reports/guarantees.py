"""What a run can promise about its answers, as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from rich.console import Console
from rich.table import Table

from icalib.core.run_folder import RunFolder
from icalib.metrics.pairs import PoolScores
from icalib.metrics.risk_control import RiskControl
from icalib.pipeline.guarantees import CONFIDENCE, controls, held_elsewhere
from icalib.reports.comparison import MISSING, format_share, format_value
from icalib.reports.console import people_console, titled_table

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
    outcome: str


def promises(run: RunFolder) -> list[Promise]:
    """Return what the run can promise, by the fraction of wrong answers that is allowed."""
    return [_promise(found) for found in controls(run)]


def print_promises(run: RunFolder, console: Console | None = None) -> None:
    """Print what the run can promise."""
    table = _table("What can be promised", HOW_TO_READ, ("threshold", "answered", "wrong when tested", "promise"))
    for row in promises(run):
        table.add_row(row.allowed, row.threshold, row.answered, row.measured, row.outcome)
    (console or people_console()).print(table)


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


def _promise(found: RiskControl) -> Promise:
    if found.threshold is None:
        return Promise(f"{found.max_error:.0%}", MISSING, MISSING, MISSING, found.refusal)
    return Promise(
        allowed=f"{found.max_error:.0%}",
        threshold=format_value(found.threshold),
        answered=format_share(found.coverage),
        measured=f"{found.num_wrong} of {found.num_answered}",
        outcome=f"at most {found.max_error:.0%} wrong",
    )


def _table(title: str, caption: str, columns: tuple[str, ...]) -> Table:
    table = titled_table(title, caption)
    table.add_column("allowed", justify="right", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="left" if name == "promise" else "right")
    return table
