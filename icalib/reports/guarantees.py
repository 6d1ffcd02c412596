"""What a run can promise about its answers, as a table."""

from __future__ import annotations

from rich.table import Column

from icalib.core.run_folder import RunFolder
from icalib.metrics.risk_control import RiskControl
from icalib.pipeline.guarantees import CONFIDENCE, MAX_ERRORS, Guarantees
from icalib.reports.console import people_console, text_table

HEADINGS = tuple(f"at most {max_error:.0%} wrong" for max_error in MAX_ERRORS)
HOW_TO_READ = (
    f"the fraction of the test pools that would be answered, so that with {CONFIDENCE:.0%} confidence no more answers "
    "are wrong than allowed, the lowest probability of an answer, and how many were wrong when it was tested "
    "(Learn then Test); `icalib predict --max-error` answers by these thresholds"
)


def promise_cells(run: RunFolder) -> tuple[str, ...]:
    """Return what the run can promise for each of MAX_ERRORS, as text."""
    guarantees = Guarantees(run)
    return tuple(_cell(guarantees.promise(max_error)) for max_error in MAX_ERRORS)


def print_promises(run: RunFolder) -> None:
    """Print what the run can promise."""
    columns = [Column(heading) for heading in HEADINGS]
    table = text_table(columns, [promise_cells(run)], title="What can be promised", caption=HOW_TO_READ)
    people_console().print(table)


def _cell(found: RiskControl) -> str:
    if found.threshold is not None:
        wrong = f"{found.num_wrong} of {found.num_answered} were wrong"
        return f"{found.coverage:.0%}, from {found.threshold:.3f} ({wrong})"
    if found.num_needed is None:
        return "none: too many of the most confident answers are wrong, or too few are known"
    return f"none: needs about {found.num_needed:,} test pools"
