"""The runs behind a paper's table: their settings, where they differ from the paper's protocol, and their results.

A row that fails, before or while it runs, doesn't stop the others.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icalib.api.settings import check_preset, check_settings, checked_fraction, labelled_fraction
from icalib.core.errors import IcalibError, SettingError
from icalib.reports.paper_table import TableRow, corpus_of

if TYPE_CHECKING:
    from icalib.api.options import RunTemplate
    from icalib.api.session import Session
    from icalib.core.run_folder import RunFolder
    from icalib.data.schema import PoolSet
    from icalib.pipeline.run import RunSettings
    from icalib.tables.table import Row, Table


def planned_rows(
    table: Table, template: RunTemplate, labelled: Sequence[float] | None = None, seeds: int | None = None
) -> list[TableRow]:
    """Resolve the settings of a table's rows; nothing is computed.

    Args:
        table: the rows.
        template: the pools, and what the user changes in all runs.
        labelled: labelled fractions; None uses the table's, else the pools'.
        seeds: runs of each row; None as many as the paper has.

    Raises:
        SettingError: a fraction is invalid, or a setting or preset fits no row.
    """
    from icalib.api.settings import variant_of

    usable = [row for row in table.rows if not _missing(row)]
    if template.preset is not None:
        check_preset(template.preset, [row.method for row in usable])
    preset = template.preset or table.preset
    named = [variant_of(row.method, preset, row.settings, lenient=True) for row in usable]
    if named:
        check_settings(template.settings, named)
    fractions = [checked_fraction(one) for one in labelled or table.labelled] or [labelled_fraction(template)]
    return [_planned(table, row, template, one, seeds or table.seeds) for one in fractions for row in table.rows]


def _missing(row: Row) -> bool:
    from icalib.methods.catalogue import load_method

    try:
        load_method(row.method)
    except SettingError:
        return True
    return False


def _planned(table: Table, row: Row, template: RunTemplate, labelled: float, seeds: int) -> TableRow:
    from icalib.api.settings import run_settings
    from icalib.data.pools import read_pool_set
    from icalib.pipeline.run import check_fits

    pool_set = read_pool_set(template.data)
    changes = table.settings_of(row, corpus_of(pool_set, table), labelled)
    ours = replace(
        template,
        labelled=labelled,
        preset=template.preset or table.preset,
        backbone=template.backbone or table.backbone,
        experiment=experiment_of(table, template),
    )
    name = "@".join(part for part in (row.method, ",".join(f"{key}={_text(value)}" for key, value in changes.items()))
                    if part)  # fmt: skip
    try:
        made = tuple(run_settings(name, ours, seed, own=changes, lenient=True) for seed in range(1, seeds + 1))
        check_fits(made[0], pool_set)
        marks = [*_pool_marks(table, pool_set, template), *_run_marks(table, row, changes, made, labelled)]
    except SettingError as error:
        return TableRow(row, labelled, error=str(error))
    return TableRow(row, labelled, made, tuple(marks))


def experiment_of(table: Table, template: RunTemplate) -> str:
    """The folder of a table's runs, which tables of one paper share; other settings have other folders."""
    if template.experiment != "default" or table.preset is None:
        return template.experiment
    own_backbone = table.backbone and not template.backbone
    return f"{table.preset}-{Path(table.backbone).name}" if table.backbone and own_backbone else table.preset


def _text(value: Any) -> str:
    """A setting in a run's name: as YAML has it, without quotes."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":")).replace('"', "")


def _pool_marks(table: Table, pool_set: PoolSet, template: RunTemplate) -> list[str]:
    """Where the pools differ from the paper's."""
    found = pool_marks(table, pool_set)
    for split, number in dict(template.limit).items():
        if number < pool_set.num_pools[split]:
            found.append(f"{number} of {pool_set.num_pools[split]} {split} pools (--limit)")
    return found


def pool_marks(table: Table, pool_set: PoolSet) -> list[str]:
    """Return where a pool set differs from the paper's pools."""
    from icalib.data.protocols import PROTOCOLS, unmet

    found = list[str]()
    if table.corpora and corpus_of(pool_set, table) is None:
        found.append(f"pools of {pool_set.name}, the paper: {', '.join(table.corpora)}")
    if table.protocol is not None:
        found += unmet(pool_set, PROTOCOLS[table.protocol])
    return found


def _run_marks(
    table: Table, row: Row, changes: dict[str, Any], made: Sequence[RunSettings], labelled: float
) -> list[str]:
    """Where the runs' settings differ from the paper's: those of the command line, the backbone, fraction and seeds."""
    from icalib.api.settings import variant_of
    from icalib.core.component import described, with_setting

    paper = variant_of(row.method, table.preset, changes, lenient=True)
    if table.backbone:
        paper = with_setting(paper, "encoder.backbone", table.backbone)
    wanted = {path: value for path, value, _ in described(paper)}
    ours = {path: value for path, value, _ in described(made[0].settings)}
    found = [
        f"{path} = {_text(ours.get(path))}, the paper: {_text(wanted.get(path))}"
        for path in {**wanted, **ours}
        if ours.get(path) != wanted.get(path) and path.partition(".")[0] != "scoring"
    ]
    if table.labelled and all(abs(labelled - one) > 1e-9 for one in table.labelled):
        found.append(f"{labelled:.3g} labelled, the paper: {', '.join(f'{one:.3g}' for one in table.labelled)}")
    if len(made) < table.seeds:
        found.append(f"{len(made)} {'seed' if len(made) == 1 else 'seeds'}, the paper: {table.seeds}")
    return found


def prepare_hint(table: Table, data: Path) -> str | None:
    """Return the command that prepares the pools' source as the paper did; None where that was done already."""
    from icalib.data.pools import read_pool_set
    from icalib.data.protocols import PROTOCOLS, prepare_command, unmet

    pool_set = read_pool_set(data)
    if table.protocol in (None, pool_set.protocol) or not unmet(pool_set, PROTOCOLS[table.protocol]):
        return None
    return prepare_command(pool_set, PROTOCOLS[table.protocol], data)


def run_row(one: TableRow, active: Session) -> TableRow:
    """Make the runs of a row; the first that fails ends the row."""
    finished: list[RunFolder] = []
    for settings in one.settings:
        active.message(f"{one.row.label}: {settings.method}, {settings.labelled:.3g} labelled, seed {settings.seed}")
        try:
            finished.append(active.run(settings))
        except IcalibError as error:
            active.message(f"{one.row.label} failed: {error}")
            return replace(one, runs=tuple(finished)).failed(f"seed {settings.seed}: {error}")
    return replace(one, runs=tuple(finished))


def evaluate_row(one: TableRow, others: Sequence[Path], limit: int | None, active: Session) -> TableRow:
    """Evaluate a row's runs on other pools; the results stay in their folders, and the first error ends the row."""
    for data in others:
        for folder in one.runs:
            try:
                active.evaluate(folder, data, limit)
            except IcalibError as error:
                active.message(f"{one.row.label} failed on {data.resolve().name}: {error}")
                return one.failed(f"{folder.name} on {data.resolve().name}: {error}")
    return one


def time_rows(rows: Sequence[TableRow], pools: Path, active: Session) -> list[TableRow]:
    """Time the first run of each row, all in turn; a row that can't be opened is left out."""
    from icalib.pipeline.inference import FinishedRun, cost_of

    done = list(rows)
    opened: dict[int, FinishedRun] = {}
    for index, one in enumerate(rows):
        try:
            if one.runs:
                opened[index] = FinishedRun.open(one.runs[0].path)
        except IcalibError as error:
            done[index] = one.failed(f"timing: {error}")
    if not opened:
        return done
    active.message("timing the rows in turn, one process and one thread each")
    try:
        costs = cost_of(list(opened.values()), pools, num_pairs=500, repeats=5)
    except IcalibError as error:
        return [one.failed(f"timing: {error}") if index in opened else one for index, one in enumerate(done)]
    for index, cost in zip(opened, costs, strict=True):
        done[index] = replace(done[index], cost=cost)
    return done
