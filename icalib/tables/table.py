"""The content of a table file, which is a paper's whole protocol, and its rules. A new table is a new file."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from icalib.core.component import Settings, validated
from icalib.core.errors import SettingError
from icalib.core.text import did_you_mean, shortened
from icalib.core.yaml_text import parse_yaml
from icalib.metrics.catalogue import known_metrics

_FOLDER = Path(__file__).parent

COSTS = ("parameters", "milliseconds", "ratio")
"""What a table about cost can show."""


class Published(Settings):
    """What a paper prints for one row."""

    corpus: str
    """The corpus that was trained on, and tested on unless `test` names another."""
    test: str | None = None
    """The corpus that was tested on."""
    labelled: float | None = Field(default=None, gt=0, le=1)
    """Fraction of the training pools that was labelled; None means all."""
    values: dict[str, float | tuple[float, float]]
    """By metric: a mean over seeds, or a mean and its spread."""


class Exceptional(Settings):
    """Settings that a paper has for some corpora, labelled fractions or rows only; empty means all of them."""

    settings: dict[str, Any] = Field(min_length=1)
    source: str
    """Where the paper says so."""
    corpora: tuple[str, ...] = ()
    labelled: tuple[float, ...] = ()
    rows: tuple[str, ...] = ()
    """Labels of rows."""


class Row(Settings):
    """One method of a table."""

    label: str
    """What the paper calls it."""
    method: str
    """Its name here."""
    settings: dict[str, Any] = Field(default={})
    """What differs from the method's own settings, by dotted name."""
    note: str = ""
    """What a reader must know about it."""
    published: tuple[Published, ...] = ()


class Table(Settings):
    """A table or figure of a paper."""

    title: str
    source: str
    """Paper and number."""
    corpora: tuple[str, ...] = ()
    """The paper's corpora; pools that were read from one of them, or have its name, are assumed to be it."""
    protocol: Literal["icast", "gpf", "pg"] | None = None
    """How the paper made its pools: `icalib prepare --protocol`."""
    preset: str | None = None
    """The paper's hyper-parameters, for all rows."""
    seeds: int = Field(default=1, ge=1)
    """Runs behind each of the paper's values."""
    spread: Literal["standard error", "standard deviation"] | None = None
    """What the paper's ± is; ours is computed alike."""
    exceptions: tuple[Exceptional, ...] = ()
    """What differs from the preset for some corpora, labelled fractions or rows."""
    note: str = ""
    """What a reader must know about the published values."""
    kind: Literal["metrics", "shift", "cost", "curve", "reliability", "cases"]
    """metrics: methods × metrics, by labelled fraction. shift: the same, and on other corpora. cost: size and time.
    curve: one setting over the rows. reliability: diagrams. cases: pools on which the first two rows differ."""
    metrics: tuple[str, ...] = Field(min_length=1)
    percent: bool = False
    """Whether the published values are percentages; ours are shown likewise."""
    labelled: tuple[Annotated[float, Field(gt=0, le=1)], ...] = ()
    """Labelled fractions to run; empty uses that of the pools."""
    backbone: str | None = None
    """Backbone of the table, if it isn't the default."""
    rows: tuple[Row, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        labels = [row.label for row in self.rows]
        _check_names("metrics", self.metrics, COSTS if self.kind == "cost" else tuple(known_metrics()))
        if len({label.lower() for label in labels}) < len(labels):
            raise ValueError("rows: labels must be distinct")
        for one in self.exceptions:
            _check_names("exceptions: rows", one.rows, labels)
            _check_names("exceptions: corpora", one.corpora, self.corpora)
        for row in self.rows:
            for one in row.published:
                where = f"rows: published values of `{row.label}`"
                _check_names(where, filter(None, (one.corpus, one.test)), self.corpora)
                _check_names(where, one.values, self.metrics)
        return self

    def settings_of(self, row: Row, corpus: str | None, labelled: float) -> dict[str, Any]:
        """Return what a row changes in its method's preset, by dotted name; `corpus` is None for any other corpus."""
        found = dict(row.settings)
        for one in self.exceptions:
            of_corpus = not one.corpora or corpus in one.corpora
            of_fraction = not one.labelled or any(abs(labelled - fraction) < 1e-9 for fraction in one.labelled)
            if of_corpus and of_fraction and (not one.rows or row.label in one.rows):
                found |= one.settings
        return found

    def chosen(self, labels: list[str]) -> Table:
        """The table with some of its rows, named by label, or by method where no row has that label.

        Raises:
            SettingError: a row is unknown.
        """
        known = {name.lower(): row for row in self.rows for name in (row.method, row.label)}
        missing = [name for name in labels if name.lower() not in known]
        if missing:
            raise SettingError(
                f"--rows: the table has no row {missing[0]}. Its rows: {', '.join(row.label for row in self.rows)}."
            )
        wanted = {name.lower() for name in labels}
        methods = wanted - {row.label.lower() for row in self.rows}
        rows = tuple(row for row in self.rows if row.label.lower() in wanted or row.method.lower() in methods)
        kept = {row.label for row in rows}
        exceptions = tuple(one for one in self.exceptions if not one.rows or kept & set(one.rows))
        return self.model_copy(update={"rows": rows, "exceptions": exceptions})


def _check_names(where: str, names: Iterable[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"{where}: `{name}` is unknown; expected one of: {', '.join(known)}")


def table_names() -> list[str]:
    """Names of the tables that come with icalib."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def load_table(name: str) -> Table:
    """Load a table by name, or from a YAML file.

    Raises:
        SettingError: the table is unknown, or its file is invalid; the message names file and key.
    """
    path = Path(name) if name.endswith((".yaml", ".yml")) else _FOLDER / f"{name}.yaml"
    try:
        values = parse_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        hint = did_you_mean(name, table_names(), 3)
        raise SettingError(f"no table `{name}`.{hint} `icalib reproduce` lists them all.") from error
    except (OSError, ValueError) as error:
        raise SettingError(
            f"{path} can't be read as YAML: {shortened(str(error), 300)}. Correct it; the tables of "
            f"icalib are in {_FOLDER}."
        ) from error
    try:
        return validated(Table, values)
    except SettingError as error:
        raise SettingError(f"{path}: {error}") from error
