"""The tables of measured values in these pages, which are written from docs/results/*.yaml and never by hand.

    make results                                                       write them all into the pages
    python docs/results.py collect runs/default/* --out docs/results/mine.yaml
                                                                       make a table of finished runs

A table appears where a page has a line `<!-- table mine -->`, up to the next `<!-- end of table -->`; other files are
linked by a page. A file has what one has to know to repeat it: the command, data, seeds, date and versions.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import model_validator

from icalib.core.component import Settings, validated
from icalib.core.errors import IcalibError, SettingError
from icalib.core.files import read_json
from icalib.core.run_folder import RunFolder
from icalib.core.yaml_text import parse_yaml
from icalib.data.schema import SPLITS
from icalib.reports.comparison import MISSING, MethodRow, by_data, format_value, method_rows, run_results

DOCS = Path(__file__).resolve().parent
PAGES = tuple(DOCS / name for name in ("results.md", "studies.md", "cost.md", "calibrate-scores.md", "guarantees.md"))
TABLES = DOCS / "results"
METRICS = ("F1", "R@1", "MAP", "ECE", "NLL", "Brier", "AURC")
"""Columns that `collect` writes by default."""
SELECTED = "pseudo-labelled pools (right)"
"""Column of what self-training selected."""

_MARKED = re.compile(r"(<!-- table (\S+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
_PACKAGES = ("torch", "transformers", "ray", "deepspeed")
"""Packages whose versions a table's file names, those that change numbers."""
USUAL_VERSIONS = {
    "icalib": "0.2.0",
    "torch": "2.13.0",
    "transformers": "5.23.0",
    "ray": "2.60.0",
    "deepspeed": "0.19.8",
}
"""Versions that results.md names at its head; below a table are only those that differ from them."""


class ResultTable(Settings):
    """One table of results, with what one has to know to repeat it."""

    command: str
    """Shell commands that made the runs."""
    data: str
    """What was trained and tested on: pool set, numbers of pools."""
    date: str
    """When it was measured, as 2026-11-22."""
    versions: dict[str, str]
    """Versions of icalib and the packages that compute."""
    columns: list[str]
    """Headings after the method, in order; the values of a row have these names."""
    rows: list[dict[str, Any]]
    """`method`, `seeds`, and for each column a number, a mean with its deviation over seeds, or a text."""

    @model_validator(mode="after")
    def _rows_have_known_columns(self) -> Self:
        for row in self.rows:
            missing = [name for name in ("method", "seeds") if name not in row]
            unknown = [name for name in row if name not in ("method", "seeds", *self.columns)]
            if missing or unknown:
                raise ValueError(f"row {row}: lacks {missing or 'nothing'}, has unknown columns {unknown or 'none'}")
        return self


def read_table(path: Path) -> ResultTable:
    """Read a table's file.

    Raises:
        SettingError: it is missing or invalid.
    """
    try:
        return validated(ResultTable, parse_yaml(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, SettingError) as error:
        raise SettingError(f"{path}: {error}") from error


def write_table(path: Path, table: ResultTable) -> None:
    """Write a table's file, with one line a row."""
    head = yaml.dump(table.model_dump(exclude={"rows"}), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    rows = "".join(
        "- "
        + yaml.dump(row, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000, default_flow_style=True)
        for row in table.rows
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{head}rows:\n{rows}", encoding="utf-8")


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as such, and short lists in one line."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)
_Dumper.add_representer(
    list, lambda dumper, values: dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=True)
)


def page_with_tables(text: str, folder: Path = TABLES) -> str:
    """Return a page with each table between its marks.

    Raises:
        SettingError: a table's file is missing or invalid.
    """
    return _MARKED.sub(lambda found: found[1] + table_text(read_table(folder / f"{found[2]}.yaml")) + found[3], text)


def named_tables(text: str) -> list[str]:
    """Return the names of a page's tables."""
    return [name for _, name, _ in _MARKED.findall(text)]


def table_text(table: ResultTable) -> str:
    """Return a table as Markdown: its command, its rows, and how it was measured."""
    seeds = [row["seeds"] for row in table.rows]
    headings = ["method", *(["seeds"] if max(seeds) > 1 else []), *table.columns]
    lines = [headings, ["---"] * len(headings)]
    lines += [[_cell(row.get(heading)) for heading in headings] for row in table.rows]
    return "\n".join(
        [
            "",
            "```bash",
            table.command.rstrip(),
            "```",
            "",
            *(f"| {' | '.join(cells)} |" for cells in lines),
            "",
            textwrap.fill(_facts(table), width=120, break_on_hyphens=False),
            "",
            "",
        ]
    )


def _facts(table: ResultTable) -> str:
    others = versions_text({name: text for name, text in table.versions.items() if text != USUAL_VERSIONS.get(name)})
    has_deviations = any(isinstance(value, list) for row in table.rows for value in row.values())
    spread = "; ± is the standard deviation over seeds" if has_deviations else ""
    return f"{table.data}{spread}. Measured on {table.date}{f' with {others}' if others else ''}."


def versions_text(versions: Mapping[str, str]) -> str:
    """Return packages with their versions, as pages name them."""
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _cell(value: Any) -> str:
    match value:
        case float():
            return format_value(value)
        case [mean, deviation]:
            return f"{format_value(mean)} ± {format_value(deviation)}"
        case None:
            return MISSING
        case _:
            return str(value)


def collected(runs: Sequence[Path], metrics: Sequence[str] = METRICS) -> ResultTable:
    """Make a table of finished runs: one row per method, mean and deviation over seeds.

    Raises:
        IcalibError: a folder is not a finished run, or the runs are not on one pool set.
    """
    folders = [RunFolder.open(path) for path in runs]
    groups = by_data(run_results(folders))
    if len(groups) != 1:
        raise SettingError(f"the runs are on {', '.join(groups)}; a table has one pool set. Name the runs of one.")
    ((name, results),) = groups.items()
    provenances = [read_json(folder.path / "provenance.json") for folder in folders]
    rows = [_collected_row(row, metrics) for row in method_rows(results)]
    has_rounds = any(SELECTED in row for row in rows)
    newest = max(provenances, key=lambda provenance: provenance["started"])
    packages: Mapping[str, str | None] = newest["packages"]
    versions = {name: version for name in _PACKAGES if (version := packages.get(name))}
    return ResultTable(
        command="\n".join(dict.fromkeys(provenance["command"] for provenance in provenances)) + "\n",
        data=f"{name}: {_pools_text(folders[0])}",
        date=newest["started"][:10],
        versions={"icalib": newest["icalib"], **versions},
        columns=[*metrics, *([SELECTED] if has_rounds else [])],
        rows=rows,
    )


def _collected_row(row: MethodRow, metrics: Sequence[str]) -> dict[str, Any]:
    values: dict[str, Any] = {"method": row.label, "seeds": row.num_seeds}
    for metric in metrics:
        mean, deviation = row.mean(metric), row.deviation(metric)
        if mean is not None:
            values[metric] = round(mean, 4) if deviation is None else [round(mean, 4), round(deviation, 4)]
    selected = _selected_text(row.runs)
    return {**values, SELECTED: selected} if selected else values


def _selected_text(runs: Sequence[RunFolder]) -> str:
    """Pools that got pseudo labels, of how many, and how many of them are right: minimum and maximum over the seeds."""
    rounds = [run.round_summaries() for run in runs if run.round_folders]
    if not rounds:
        return ""
    chosen = [sum(one.num_pools_selected for one in of_run) for of_run in rounds]
    scored = [sum(one.num_pools_scored for one in of_run) for of_run in rounds]
    right = [
        sum(one.num_pools_selected * (one.pool_accuracy or 0.0) for one in of_run) / number
        for of_run, number in zip(rounds, chosen, strict=True)
        if number and all(one.pool_accuracy is not None or not one.num_pools_selected for one in of_run)
    ]
    percent = f" ({_span([round(100 * fraction) for fraction in right])} %)" if right else ""
    return f"{_span(chosen)} of {_span(scored)}{percent}"


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _pools_text(run: RunFolder) -> str:
    """Numbers of pools that were used, as far as the run says: those of test, and the limits of the others."""
    limit: Mapping[str, int | None] = run.config["limit"]
    parts = [f"{run.result['labelled']:.3g} of the training pools labelled"]
    parts += [f"at most {limit[split]:,} {split} pools" for split in SPLITS[:2] if limit.get(split)]
    return ", ".join([*parts, f"{int(run.result['test']['num_pools']):,} test pools"])


def main() -> None:
    """Write the pages, or collect a table."""
    parser = argparse.ArgumentParser(description="The tables of the pages of results.")
    verbs = parser.add_subparsers(dest="verb")
    collect = verbs.add_parser("collect", help="make a table of finished runs")
    collect.add_argument("runs", nargs="+", type=Path, help="run folders on one pool set")
    collect.add_argument("--out", required=True, type=Path, help="YAML file to write, e.g. docs/results/mine.yaml")
    collect.add_argument("--metrics", default=",".join(METRICS), help="columns, separated by commas")
    arguments = parser.parse_args()
    try:
        if arguments.verb == "collect":
            write_table(arguments.out, collected(arguments.runs, arguments.metrics.split(",")))
            print(
                f"{arguments.out}: write `<!-- table {arguments.out.stem} -->` and `<!-- end of table -->` into a page"
            )
        else:
            for page in PAGES:
                page.write_text(page_with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
                print(page)
    except IcalibError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
