"""Sweep spaces: plain modules that propose settings. They need neither Ray nor a running study.

A module `tune_spaces/idea.py` is the space `idea`. It has

- `METHOD`, the method that is tuned unless another is named, and `METRICS`, validation metrics (those from outside by
  import path, `my_lab.metrics:mean_rank`) with `"maximize"` or `"minimize"` (the first decides who wins; with several
  the report shows the Pareto front);
- `suggest(trial)`, which returns changes of the method's settings by dotted key;
- optionally `SAMPLER` and `PRUNER`, the defaults of the sweep, and `grid()`, the points of the sampler `grid`: what
  `trial` should suggest, by the names that `suggest` uses.

A space may also be any other file, or a module of a package outside of icalib (docs/extend/README.md).
"""

from __future__ import annotations

import importlib.util
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, cast, get_args

from pydantic import Field, field_validator

from icalib.core.component import Settings, validated
from icalib.core.errors import SettingError
from icalib.core.files import file_digest, is_file
from icalib.core.imports import failed, import_module
from icalib.core.text import did_you_mean, short_repr, shortened
from icalib.metrics.catalogue import find_metric
from icalib.metrics.metric import Direction

FOLDER = Path(__file__).resolve().parents[2] / "tune_spaces"
"""The folder of the spaces that come with icalib: beside the package, in a clone and where pip installs it."""

Sampler = Literal["grid", "random", "tpe", "nsga2"]
SAMPLERS: tuple[Sampler, ...] = get_args(Sampler)
Pruner = Literal["none", "median", "asha", "hyperband"]
PRUNERS: tuple[Pruner, ...] = get_args(Pruner)


class Space(Settings):
    """A sweep space, as its module defines it."""

    name: str
    file: str
    digest: str
    """Of the module's text."""
    method: str = Field(alias="METHOD")
    metrics: dict[str, Direction] = Field(alias="METRICS", min_length=1)
    sampler: Sampler = Field(alias="SAMPLER")
    pruner: Pruner = Field(alias="PRUNER")
    suggest: Callable[[Any], Any]
    """The module's function; `proposed` validates what it returns."""
    grid: Callable[[], Any] | None
    """The module's function; `points` validates what it returns."""

    @field_validator("metrics")
    @classmethod
    def _are_known(cls, metrics: dict[str, Direction]) -> dict[str, Direction]:
        for name, direction in metrics.items():
            own = find_metric(name).direction
            if own is not None and own != direction:
                raise ValueError(f"found {direction} for {name}, of which {own} is better")
        return metrics

    def proposed(self, trial: Any) -> dict[str, Any]:
        """Return what the space suggests for a trial, by dotted key; what goes wrong in it is a SettingError."""
        found = self._called("suggest(trial)", lambda: self.suggest(trial))
        return self._settings(found, "what suggest(trial) returns")

    def points(self) -> list[dict[str, Any]]:
        """Return the grid's points, each once; none where the space has no grid. Errors are those of `proposed`."""
        grid = self.grid
        found = [] if grid is None else self._called("grid()", lambda: list(grid()))
        points = [self._settings(point, "each point of grid()") for point in found]
        return [point for index, point in enumerate(points) if point not in points[:index]]

    def _called(self, name: str, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except (Exception, SystemExit) as error:
            raise failed(f"{self.file}: {name} failed", error) from error

    def _settings(self, found: Any, what: str) -> dict[str, Any]:
        if isinstance(found, dict) and all(isinstance(key, str) for key in cast("dict[Any, Any]", found)):
            settings = dict(cast("dict[str, Any]", found))
            for key, value in settings.items():
                self._check_plain(key, value)
            return settings
        raise SettingError(
            f"{self.file}: expected {what} to be a dict of settings by dotted key, found {short_repr(found)}."
        )

    def _check_plain(self, key: str, value: Any) -> None:
        """Refuse what the study can't store."""
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            raise SettingError(
                f"{self.file}: found {short_repr(value)} ({type(value).__name__}) as {key}, expected a number, text, "
                "true, false, null, or a list or dict of such. `.item()` makes a number of one of numpy's."
            ) from None


def space_names() -> list[str]:
    """Return the names of the spaces that come with icalib."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")


def load_space(name: str) -> Space:
    """Load the space of a name (`icast_tpe`), a path (`spaces/idea.py`) or an import path (`my_lab.spaces.idea`)."""
    module = _module(name)
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not is_file(Path(file)):
        raise SettingError(f"the space {shortened(name)} is not a Python file; expected one with `suggest(trial)`.")
    grid = getattr(module, "grid", None)
    values = {
        "name": str(module.__name__).rpartition(".")[2],
        "file": file,
        "digest": file_digest(file)[:16],
        "METHOD": getattr(module, "METHOD", None),
        "METRICS": getattr(module, "METRICS", None),
        "SAMPLER": getattr(module, "SAMPLER", "tpe" if grid is None else "grid"),
        "PRUNER": getattr(module, "PRUNER", "none"),
        "suggest": getattr(module, "suggest", None),
        "grid": grid,
    }
    try:
        return validated(Space, values)
    except SettingError as error:
        message = str(error).rstrip(".")
        raise SettingError(f"the space {file}: {message}. docs/extend/README.md says what a space has.") from error


def product(values: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return all combinations of values, the last name's changing fastest: what a `grid()` returns.

    Example:
        >>> product({"a": [1, 2], "b": ["x"]})
        [{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'x'}]
    """
    return [dict(zip(values, point, strict=True)) for point in itertools.product(*values.values())]


def _module(name: str) -> ModuleType:
    if name.endswith(".py") or "/" in name:
        return _loaded(Path(name))
    if "." in name:
        return import_module(name, "space module")
    path = FOLDER / f"{name.replace('-', '_')}.py"
    if not is_file(path):
        hint = did_you_mean(name, space_names(), 3)
        raise SettingError(
            f"no space `{shortened(name)}`.{hint} There are: {', '.join(space_names())}; name any other by its path."
        )
    return _loaded(path)


def _loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if not is_file(path) or spec is None or spec.loader is None:
        raise SettingError(f"no space at {path}; expected a Python file with `suggest(trial)`.")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise failed(f"the space {path} can't be read", error) from error
    return module
