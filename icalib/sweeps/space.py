"""Sweep spaces: plain modules that propose settings. They need neither Ray nor a running study.

A module `tune_spaces/idea.py` is the space `idea`. It has

- a docstring, whose first line is the question that the sweep answers;
- `METHOD`, the method that is tuned unless another is named, and `METRICS`, validation metrics (those from outside by
  import path, `my_lab.metrics:mean_rank`) with `"maximize"` or `"minimize"` (the first decides who wins; with several
  the report shows the Pareto front);
- `suggest(trial)`, which returns changes of the method's settings by dotted key;
- optionally `SAMPLER` and `PRUNER`, the defaults of the sweep, and `grid()`, the points of the sampler `grid`: what
  `trial` should suggest, by the names that `suggest` uses.

A space may also be any other file, or a module of a package outside of icalib (docs/extend/sweep-space.md).
"""

from __future__ import annotations

import importlib.util
import itertools
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from icalib.core.errors import SettingError
from icalib.core.files import file_digest, is_file
from icalib.core.imports import failed, import_module
from icalib.core.text import short_repr, shortened
from icalib.metrics.catalogue import find_metric
from icalib.metrics.metric import Direction

FOLDER = Path(__file__).resolve().parents[2] / "tune_spaces"
"""The folder of the spaces that come with icalib: beside the package, in a clone and where pip installs it."""

SAMPLERS = ("grid", "random", "tpe", "nsga2", "qmc")
PRUNERS = ("none", "median", "asha", "hyperband")


@dataclass(frozen=True)
class Space:
    """A sweep space, as its module defines it."""

    name: str
    description: str
    digest: str
    """Of the module's text."""
    method: str
    metrics: Mapping[str, Direction]
    sampler: str
    pruner: str
    file: str
    suggest: Callable[[Any], Any]
    """The module's function; `proposed` validates what it returns."""
    grid: Callable[[], Any] | None
    """The module's function; `points` validates what it returns."""

    def proposed(self, trial: Any) -> dict[str, Any]:
        """Return what the space suggests for a trial, by dotted key.

        Raises:
            SettingError: `suggest` raises an error, or returns anything but settings by dotted key.
        """
        return self._settings(self._called("suggest(trial)", lambda: self.suggest(trial)), "suggest(trial)")

    def points(self) -> list[dict[str, Any]]:
        """Return the grid's points, each once; none where the space has no grid.

        Raises:
            SettingError: see `proposed`.
        """
        found = self._called("grid()", self.grid) if self.grid is not None else []
        if isinstance(found, str | Mapping) or not isinstance(found, Iterable):
            raise SettingError(
                f"{self.file}: grid() returned {short_repr(found)}; expected a list of points, each a dict."
            )
        points = self._called("grid()", lambda: list(cast("Iterable[Any]", found)))  # a generator may fail
        points = [self._settings(point, "grid()") for point in points]
        return self._called("grid()", lambda: [each for index, each in enumerate(points) if each not in points[:index]])

    def _called(self, name: str, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except (Exception, SystemExit) as error:
            lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == self.file]
            where = f"{self.file}, line {lines[-1]}" if lines else self.file
            raise SettingError(
                f"{where}: {name} failed: {type(error).__name__}: {shortened(str(error), 300)}. Correct it."
            ) from error

    def _settings(self, found: Any, name: str) -> dict[str, Any]:
        if isinstance(found, dict) and all(isinstance(key, str) for key in cast("dict[Any, Any]", found)):
            return dict(cast("dict[str, Any]", found))
        raise SettingError(
            f"{self.file}: {name} returned {short_repr(found)}; expected a dict of settings by dotted key."
        )


def space_names() -> list[str]:
    """Return the names of the spaces that come with icalib."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")


def load_space(name: str) -> Space:
    """Load the space of a name (`icast_tpe`), a path (`spaces/idea.py`) or an import path (`my_lab.spaces.idea`).

    Raises:
        SettingError: there is no such space, or its module is incomplete.
    """
    module = _module(name)
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not is_file(Path(file)):
        raise SettingError(f"the space {shortened(name)} is not a Python file; expected one with `suggest(trial)`.")
    suggest = getattr(module, "suggest", None)
    if not callable(suggest):
        raise SettingError(
            f"the space {module.__file__} has no function `suggest(trial)` that returns settings by dotted key."
        )
    grid = getattr(module, "grid", None)
    sampler = _one_of(module, "SAMPLER", SAMPLERS, "grid" if grid else "tpe")
    if sampler == "grid" and grid is None:
        raise SettingError(f"{module.__file__} asks for the sampler grid and has no function `grid()`. Add it.")
    return Space(
        name=str(module.__name__).rpartition(".")[2],
        description=_description(module),
        digest=file_digest(file)[:16],
        method=_method(module),
        metrics=_metrics(module),
        sampler=sampler,
        pruner=_one_of(module, "PRUNER", PRUNERS, "none"),
        file=file,
        suggest=cast("Callable[[Any], Any]", suggest),
        grid=grid,
    )


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
        near = get_close_matches(name, space_names(), n=3)
        hint = f"Did you mean {' or '.join(f'`{n}`' for n in near)}? " if near else ""
        raise SettingError(
            f"no space `{shortened(name)}`. {hint}There are: {', '.join(space_names())}; name any other by its path."
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


def _description(module: ModuleType) -> str:
    text = module.__doc__
    lines = text.strip().splitlines() if isinstance(text, str) else []
    if not lines:
        raise SettingError(
            f"the space {module.__file__} has no docstring; its first line should be the question that it answers."
        )
    return lines[0]


def _method(module: ModuleType) -> str:
    method = getattr(module, "METHOD", None)
    if not isinstance(method, str):
        raise SettingError(f'{module.__file__} names no method; write METHOD = "icast", for example.')
    return method


def _metrics(module: ModuleType) -> dict[str, Direction]:
    found = getattr(module, "METRICS", None)
    if not isinstance(found, dict) or not found:
        raise SettingError(f'{module.__file__} has no metrics; write METRICS = {{"F1": "maximize"}}, for example.')
    metrics = cast("dict[Any, Any]", found)
    for name, direction in metrics.items():
        try:
            find_metric(str(name))
        except SettingError as error:
            raise SettingError(f"METRICS of {module.__file__}: {error}") from error
        if direction not in ("maximize", "minimize"):
            raise SettingError(
                f"METRICS of {module.__file__}: {short_repr(name)} has the direction {short_repr(direction)}, expected "
                '"maximize" or "minimize".'
            )
    return metrics


def _one_of(module: ModuleType, name: str, choices: Sequence[str], default: str) -> str:
    found = getattr(module, name, default)
    if not isinstance(found, str) or found not in choices:
        raise SettingError(
            f"{module.__file__}: {name} = {short_repr(found)} is unknown; choose one of: {', '.join(choices)}."
        )
    return found
