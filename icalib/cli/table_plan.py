"""The runs behind a reproduced table: their settings, and which of them exist already."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from icalib.api.settings import (
    check_preset,
    check_settings,
    checked_fraction,
    labelled_fraction,
    run_settings,
    variant_of,
)
from icalib.cli.output import say
from icalib.cli.parsing import parsed_fractions
from icalib.core.errors import IcalibError, SettingError
from icalib.core.storage import pull

if TYPE_CHECKING:
    from icalib.api.options import RunTemplate
    from icalib.core.run_folder import RunFolder
    from icalib.pipeline.run import RunSettings
    from icalib.tables.table import Row, Table


@dataclass(frozen=True)
class PlannedRow:
    """A row with one labelled fraction: the settings of its runs, or why there are none."""

    row: Row
    labelled: float
    settings: tuple[RunSettings, ...]
    error: str = ""


def planned_rows(table: Table, template: RunTemplate, labelled: str | None, seeds: int) -> list[PlannedRow]:
    """Return the rows of a table, each with each labelled fraction.

    Args:
        table: the chosen rows.
        template: what all runs have in common.
        labelled: fractions separated by commas; None uses the table's, or the pools'.
        seeds: runs of each row.

    Raises:
        SettingError: a fraction is invalid, or a setting or preset fits no row.
    """
    _check_options(table.rows, template)
    return [
        _planned(row, replace(template, labelled=fraction), seeds)
        for fraction in _fractions(labelled, table, template)
        for row in table.rows
    ]


def _fractions(text: str | None, table: Table, template: RunTemplate) -> list[float]:
    if text is None:
        return [*table.labelled] or [labelled_fraction(template)]
    return [checked_fraction(fraction) for fraction in parsed_fractions(text, "--labelled")]


def _check_options(rows: Sequence[Row], template: RunTemplate) -> None:
    """Refuse settings or a preset that fit no row; rows that are invalid are shown with their error later."""
    names: list[str] = []
    methods: list[object] = []
    for row in rows:
        with suppress(SettingError):
            methods.append(variant_of(row.method, template.preset, row.settings, lenient=True))
            names.append(row.method)
    if methods:
        check_preset(template.preset, names)
        check_settings(template.settings, methods)


def _planned(row: Row, template: RunTemplate, seeds: int) -> PlannedRow:
    """Errors (an unknown method, data without intents) are found before anything runs."""
    from icalib.data.pools import read_pool_set
    from icalib.pipeline.run import check_fits

    assert template.labelled is not None
    try:
        made = tuple(
            run_settings(row.variant, template, seed, own=row.settings, lenient=True) for seed in range(1, seeds + 1)
        )
        check_fits(made[0], read_pool_set(made[0].data))
    except SettingError as error:
        return PlannedRow(row, template.labelled, (), str(error))
    return PlannedRow(row, template.labelled, made)


def print_plan(planned: Sequence[PlannedRow], runs: Path) -> None:
    """Print which runs exist, which would be resumed and which would start, and for how long."""
    from icalib.pipeline.run import run_folder_of
    from icalib.reports.paper_table_terminal import print_planned

    lines: list[tuple[str, str]] = []
    times: list[tuple[float, float, float]] = []
    unknown: list[str] = []
    for one in planned:
        if one.error:
            lines.append((f"{one.row.label} ({one.row.method})", f"can't run: {one.error}"))
        folders = [run_folder_of(settings, runs) for settings in one.settings]
        states = [_state(folder, settings) for folder, settings in zip(folders, one.settings, strict=True)]
        lines += [(folder.name, state) for folder, state in zip(folders, states, strict=True)]
        num_missing = states.count("resumes") + states.count("would run")
        planned_time = _planned_time(one, runs)
        if num_missing and planned_time is None:
            unknown.append(one.row.label)
        elif planned_time is not None:
            times += num_missing * [planned_time]
    print_planned(lines)
    counts = {state: sum(line[1] == state for line in lines) for state in ("finished", "resumes", "would run")}
    say(f"{counts['would run']} to run, {counts['resumes']} to resume, {counts['finished']} finished already")
    _say_times(times, list(dict.fromkeys(unknown)))


def _state(folder: RunFolder, settings: RunSettings) -> str:
    """Return what `icalib run` with these settings would find."""
    from icalib.pipeline.claim import is_started

    pull(folder.path, leave_out="checkpoints")
    try:
        if not is_started(folder, settings):
            return "would run"
    except IcalibError as error:
        return f"can't run: {error}"
    return "finished" if folder.is_finished else "resumes"


def _planned_time(one: PlannedRow, runs: Path) -> tuple[float, float, float] | None:
    """Expected, minimum and maximum seconds of a run of the row; the plan of one seed counts for the others."""
    from icalib.core.files import read_json
    from icalib.pipeline.run import plan_path

    for settings in one.settings:
        path = plan_path(settings, runs)
        pull(path)
        if path.is_file():
            seconds = read_json(path)["seconds"]
            return seconds["expected"], seconds["low"], seconds["high"]
    return None


def _say_times(times: Sequence[tuple[float, float, float]], unknown: Sequence[str]) -> None:
    from icalib.reports.comparison import format_seconds

    if times:
        expected, low, high = (format_seconds(sum(parts)) for parts in zip(*times, strict=True))
        say(f"about {expected} ({low} to {high}) for {len(times)} of them by `icalib plan`, less with shared stages")
    if unknown:
        say(f"no plan exists of: {', '.join(unknown)}; `icalib plan METHOD` with the same options makes one")
