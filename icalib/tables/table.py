"""The content of a table file, and its rules. A new table is a new file."""

from __future__ import annotations

import json
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from icalib.core.component import Settings, validated
from icalib.core.errors import SettingError
from icalib.core.text import short_repr, shortened
from icalib.core.yaml_text import parse_yaml
from icalib.metrics.catalogue import known_metrics

_FOLDER = Path(__file__).parent

Kind = Literal["metrics", "shift", "cost", "curve", "reliability", "cases"]
COSTS = ("parameters", "milliseconds", "ratio")
"""What a table about cost can show."""


class PublishedValue(Settings):
    """A published value; papers may give its spread over seeds."""

    mean: float
    deviation: float | None = None


def _published_value(value: Any) -> Any:
    """`0.68`, or `[0.68, 0.01]` with a deviation."""
    if isinstance(value, list) and len(value) == 2:
        return {"mean": value[0], "deviation": value[1]}
    return {"mean": value} if isinstance(value, int | float) else value


class Published(Settings):
    """What a paper prints for one row."""

    corpus: str
    """The corpus that was trained on, and tested on unless `test` names another."""
    test: str | None = None
    """The corpus that was tested on."""
    labelled: float | None = Field(default=None, gt=0, le=1)
    """Fraction of the training pools that was labelled; None means all."""
    values: dict[str, Annotated[PublishedValue, BeforeValidator(_published_value)]]
    """By metric."""


class Row(Settings):
    """One method of a table."""

    label: str
    """What the paper calls it."""
    method: str
    """Its name here."""
    settings: dict[str, Any] = Field(default={})
    """What differs from the method's own settings, by dotted name."""
    x: float | str | None = None
    """Position on a curve's axis."""
    note: str = ""
    """What a reader must know about it."""
    published: tuple[Published, ...] = ()

    @property
    def variant(self) -> str:
        """The name of its runs, as `icalib compare` writes it: METHOD@KEY=VALUE,…"""
        changes = ",".join(f"{name}={_written(value)}" for name, value in self.settings.items())
        return f"{self.method}@{changes}" if changes else self.method


def _written(value: Any) -> str:
    """A setting in a name: as YAML has it, without quotes."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":")).replace('"', "")


class Table(Settings):
    """A table or figure of a paper."""

    title: str
    source: str
    """Paper and number."""
    corpora: tuple[str, ...] = ()
    """The paper's corpora; pools with the name of one of them are assumed to be it."""
    note: str = ""
    """What a reader must know about the published values."""
    kind: Kind
    """metrics: methods × metrics, by labelled fraction. shift: the same, and on other corpora. cost: size and time.
    curve: over `x`. reliability: diagrams. cases: pools on which the first two rows differ."""
    metrics: tuple[str, ...] = Field(min_length=1)
    percent: bool = False
    """Whether the published values are percentages; ours are shown likewise."""
    labelled: tuple[Annotated[float, Field(gt=0, le=1)], ...] = ()
    """Labelled fractions to run; empty uses that of the pools."""
    backbone: str | None = None
    """Backbone of the table, if it isn't the default."""
    x_label: str = ""
    bars: Literal["selected_intents"] | None = None
    """What a curve's bars count: pairs pseudo-labelled with predicted intents, mean over the rounds."""
    rows: tuple[Row, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        known = COSTS if self.kind == "cost" else tuple(known_metrics())
        if odd := [metric for metric in self.metrics if metric not in known]:
            raise ValueError(
                f"metrics: `{odd[0]}` is not a metric of a {self.kind} table; expected one of: {', '.join(known)}"
            )
        labels = [row.label.lower() for row in self.rows]
        if twice := [row.label for row in self.rows if labels.count(row.label.lower()) > 1]:
            raise ValueError(f"rows: two rows have the label `{twice[0]}`; labels must be distinct")
        if self.kind == "curve" and (without := [row.label for row in self.rows if row.x is None]):
            raise ValueError(f"rows: `{without[0]}` has no x, its position on the curve's axis")
        for row in self.rows:
            self._check_published(row)
        return self

    def _check_published(self, row: Row) -> None:
        for one in row.published:
            if odd := [corpus for corpus in (one.corpus, one.test) if corpus and corpus not in self.corpora]:
                raise ValueError(f"corpora: lacks `{odd[0]}`, for which `{row.label}` has published values")
            if odd := [metric for metric in one.values if metric not in self.metrics]:
                raise ValueError(f"rows: `{row.label}` has published values of `{odd[0]}`, which isn't in metrics")

    def chosen(self, labels: list[str]) -> Table:
        """The table with some of its rows, named by label or method.

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
        rows = tuple(row for row in self.rows if wanted & {row.method.lower(), row.label.lower()})
        return self.model_copy(update={"rows": rows})


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
        near = get_close_matches(name, table_names(), n=3)
        hint = f"Did you mean {' or '.join(near)}? " if near else ""
        raise SettingError(f"no table `{name}`. {hint}`icalib reproduce --list` lists them all.") from error
    except (OSError, ValueError) as error:
        raise SettingError(
            f"{path} can't be read as YAML: {shortened(str(error), 300)}. Correct it; the tables of "
            f"icalib are in {_FOLDER}."
        ) from error
    if not isinstance(values, dict):
        raise SettingError(
            f"{path} holds {short_repr(values)} where a table was expected: title, source, kind, metrics, rows."
        )
    try:
        return validated(Table, values)
    except SettingError as error:
        raise SettingError(f"{path}: {error}") from error
