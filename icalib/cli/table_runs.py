"""Running, evaluating and timing the rows of a reproduced table; a row that fails doesn't stop the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from icalib.core.errors import IcalibError

if TYPE_CHECKING:
    from icalib.api.session import Session
    from icalib.cli.table_plan import PlannedRow
    from icalib.core.run_folder import RunFolder
    from icalib.reports.reproduced import RowRuns


def run_row(one: PlannedRow, active: Session) -> RowRuns:
    """Make the runs of a row; the first that fails ends the row."""
    from icalib.reports.reproduced import RowRuns

    finished: list[RunFolder] = []
    for settings in one.settings:
        active.message(f"{one.row.label}: {settings.method}, {settings.labelled:.3g} labelled, seed {settings.seed}")
        try:
            finished.append(active.run(settings))
        except IcalibError as error:
            active.message(f"{one.row.label} failed: {error}")
            return RowRuns(one.row, one.labelled, tuple(finished), f"seed {settings.seed}: {error}")
    return RowRuns(one.row, one.labelled, tuple(finished), one.error)


def evaluate_row(one: RowRuns, others: Sequence[Path], limit: int | None, active: Session) -> RowRuns:
    """Evaluate a row's runs on other pools; the results stay in their folders, and the first error ends the row."""
    for data in others:
        for folder in one.runs:
            try:
                active.evaluate(folder, data, limit)
            except IcalibError as error:
                active.message(f"{one.row.label} failed on {data.resolve().name}: {error}")
                return _with_error(one, f"{folder.name} on {data.resolve().name}: {error}")
    return one


def time_rows(rows: Sequence[RowRuns], pools: Path, active: Session) -> list[RowRuns]:
    """Time the first seed of each row, all in turn; a row that can't be opened is left out."""
    from icalib.pipeline.inference import FinishedRun, cost_of

    done = list(rows)
    opened: dict[int, FinishedRun] = {}
    for index, one in enumerate(rows):
        try:
            if one.runs:
                opened[index] = FinishedRun.open(one.runs[0].path)
        except IcalibError as error:
            done[index] = _with_error(one, f"timing: {error}")
    if not opened:
        return done
    active.message("timing the rows in turn, one process and one thread each")
    try:
        costs = cost_of(list(opened.values()), pools, num_pairs=500, repeats=5)
    except IcalibError as error:
        return [_with_error(one, f"timing: {error}") if index in opened else one for index, one in enumerate(done)]
    for index, cost in zip(opened, costs, strict=True):
        done[index] = replace(done[index], cost=cost)
    return done


def _with_error(one: RowRuns, error: str) -> RowRuns:
    return replace(one, error="; ".join(part for part in (one.error, error) if part))
