"""The runs behind a paper's table: their settings, where they differ from the paper's protocol, and their results.

A row that fails, before or while it runs, doesn't stop the others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icalib.api.settings import (
    check_preset,
    check_settings,
    checked_fraction,
    composed,
    labelled_fraction,
    run_settings,
)
from icalib.core.errors import IcalibError, SettingError
from icalib.core.files import content_digest
from icalib.reports.paper_table import TableRow, corpus_of

if TYPE_CHECKING:
    from icalib.api.options import RunTemplate
    from icalib.api.session import Session
    from icalib.core.run_folder import RunFolder
    from icalib.data.schema import PoolSet
    from icalib.methods.method import Method
    from icalib.pipeline.config import RunConfig
    from icalib.tables.table import Row, Table


def planned_rows(
    table: Table, template: RunTemplate, labelled: Sequence[float] | None = None, seeds: int | None = None
) -> list[TableRow]:
    """Resolve the settings of a table's rows; nothing is computed.

    `labelled` fractions default to the table's, else the pools'; `seeds`, the runs of each row, to the paper's. A
    SettingError says that a fraction is invalid, or that a setting or preset of the template fits no row.
    """
    check_preset(template.preset, [row.method for row in table.rows if _exists(row.method)])
    template = of_protocol(table, template)
    if methods := _methods(table, template.preset):
        check_settings(template.settings, methods)
    fractions = [checked_fraction(one) for one in labelled or table.labelled] or [labelled_fraction(template)]
    return [_planned(table, row, template, one, seeds or table.seeds) for one in fractions for row in table.rows]


def _exists(method: str) -> bool:
    from icalib.methods.catalogue import load_method

    with suppress(SettingError):
        return bool(load_method(method))
    return False


def _planned(table: Table, row: Row, template: RunTemplate, labelled: float, seeds: int) -> TableRow:
    from icalib.data.pools import read_pool_set
    from icalib.pipeline.run import check_fits

    pool_set = read_pool_set(template.data)
    changes, ours = table.settings_of(row, corpus_of(pool_set, table), labelled), replace(template, labelled=labelled)
    kept = changes.keys() - template.settings.keys()  # others are replaced by --set
    variant = ",".join(f"{key}={_text(value)}" for key, value in changes.items() if key in kept)
    name = f"{row.method}@{variant}" if variant else row.method
    try:
        made = tuple(run_settings(name, ours, seed, own=changes, lenient=True) for seed in range(1, seeds + 1))
        check_fits(made[0], pool_set)
        limits = [
            f"{number} of {pool_set.num_pools[split]} {split} pools (--limit)"
            for split, number in template.limit.items()
            if number < pool_set.num_pools[split]
        ]
        marks = (*pool_marks(table, pool_set), *limits, *_run_marks(table, row, changes, made, labelled))
    except SettingError as error:
        return TableRow(row, labelled, error=str(error))
    return TableRow(row, labelled, made, marks)


def of_protocol(table: Table, template: RunTemplate) -> RunTemplate:
    """Return a template with a table's preset and backbone where it has none, and the experiment of such runs.

    Tables of one paper share an experiment. Another preset or backbone than the protocol's has another one; runs that
    differ in other settings need an `--experiment`.
    """
    preset, backbone = template.preset or table.preset, template.backbone or table.backbone
    experiment = template.experiment
    if experiment == "default":
        experiment = preset or experiment
        if backbone is not None and {method.encoder.backbone for method in _methods(table, preset)} != {backbone}:
            experiment = f"{experiment}-{_backbone_name(backbone)}"
    return replace(template, preset=preset, backbone=backbone, experiment=experiment)


def _methods(table: Table, preset: str | None) -> list[Method]:
    """Return the methods of the rows that have one, as a preset and the table make them."""
    rows = (row for row in table.rows if _exists(row.method))
    return [composed(row.method, preset, own=row.settings, lenient=True) for row in rows]


def _backbone_name(backbone: str) -> str:
    """A backbone as a part of a folder's name; those that aren't a name of their own have a digest."""
    readable = re.sub(r"[^\w.-]", "-", Path(backbone).name)[:60]
    return readable if readable == backbone else f"{readable}-{content_digest(backbone)[:8]}"


def _text(value: Any) -> str:
    """A setting in a run's name: as YAML has it, without quotes."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":")).replace('"', "")


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
    table: Table, row: Row, changes: dict[str, Any], made: Sequence[RunConfig], labelled: float
) -> list[str]:
    from icalib.core.component import described, with_settings
    from icalib.methods.catalogue import paper_preset

    sources = paper_preset(row.method, table.preset) if table.preset else {}
    chosen = {path for path, value in sources.items() if value.kind == "ours"} - changes.keys()
    paper = composed(row.method, table.preset, own=changes, lenient=True)
    if table.backbone:
        paper = with_settings(paper, {"encoder.backbone": table.backbone})
    wanted, ours = ({path: value for path, value, _ in described(one)} for one in (paper, made[0].settings))
    different = [path for path in {**wanted, **ours} if ours.get(path) != wanted.get(path)]
    found = [
        *dict.fromkeys(
            _setting_mark(path, wanted, ours, chosen) for path in different if not path.startswith("scoring.")
        )
    ]
    if table.labelled and all(abs(labelled - one) > 1e-9 for one in table.labelled):
        found.append(f"{labelled:.3g} labelled, the paper: {', '.join(f'{one:.3g}' for one in table.labelled)}")
    if made[0].resample_labels and labelled < 1:
        found.append("labelled pools drawn for each seed (--resample-labels), the paper: the same for all")
    if len(made) < table.seeds:
        found.append(f"{len(made)} {'seed' if len(made) == 1 else 'seeds'}, the paper: {table.seeds}")
    return found


def _setting_mark(path: str, wanted: Mapping[str, Any], ours: Mapping[str, Any], chosen: Collection[str]) -> str:
    """Return how a setting differs, from the paper or from what we have `chosen` for its preset; of a part that one of
    the two lacks, that it does.
    """
    names = path.split(".")
    for whole in (".".join(names[:number]) for number in range(1, len(names))):
        if wanted.get(whole, ...) is None:
            return f"{whole}, the paper: none"
        if ours.get(whole, ...) is None:
            return f"no {whole}, the paper has it"
    whose = "the preset, by our choice" if path in chosen else "the paper"
    return f"{path} = {_text(ours.get(path))}, {whose}: {_text(wanted.get(path))}"


def prepare_hint(table: Table, data: Path) -> str | None:
    """Return the command that prepares the pools' source as the paper did; None where that was done already."""
    from icalib.data.pools import read_pool_set
    from icalib.data.protocols import PROTOCOLS, prepare_command, unmet

    pool_set = read_pool_set(data)
    if table.protocol in (None, pool_set.protocol) or not unmet(pool_set, PROTOCOLS[table.protocol]):
        return None
    return prepare_command(pool_set, PROTOCOLS[table.protocol], data)


def run_row(one: TableRow, others: Sequence[Path], template: RunTemplate, active: Session) -> TableRow:
    """Make the runs of a row and evaluate them on other pools; the first error ends the row, and is shown in it."""
    finished: list[RunFolder] = []
    what = ""
    try:
        for settings in one.settings:
            what = f"seed {settings.seed}"
            active.message(f"{one.row.label}: {settings.method}, {settings.labelled:.3g} labelled, {what}")
            finished.append(active.run(settings))
        for data, folder in product(others, finished):
            what = f"{folder.name} on {data.resolve().name}"
            active.evaluate(folder, data, template.limit.get("test"))
    except IcalibError as error:
        active.message(f"{one.row.label} failed: {what}: {error}")
        return replace(one, runs=tuple(finished)).failed(f"{what}: {error}")
    return replace(one, runs=tuple(finished))


def time_rows(rows: Sequence[TableRow], pools: Path, active: Session) -> list[TableRow]:
    """Time the first run of each row, all in turn."""
    from icalib.pipeline.finished import FinishedRun, cost_of

    timed = [one for one in rows if one.runs]
    active.message("timing the rows in turn, one process and one thread each")
    try:
        opened = [FinishedRun.open(one.runs[0].path) for one in timed]
        costs = iter(cost_of(opened, pools) if opened else ())
    except IcalibError as error:
        return [one.failed(f"timing: {error}") if one.runs else one for one in rows]
    return [replace(one, cost=next(costs)) if one.runs else one for one in rows]
