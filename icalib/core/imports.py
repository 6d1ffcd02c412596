"""Importing what users name, and what installed packages register."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from icalib.core.errors import ComponentError, IcalibError, SettingError
from icalib.core.text import did_you_mean, shortened

_NOT_THEIRS = (*map(sysconfig.get_path, ("stdlib", "purelib", "platlib")), f"{Path(__file__).parents[1]}/", "<")
"""Beginnings of the files in which a user's mistake may end, but isn't."""


def is_import_path(path: str) -> bool:
    """Whether a text could name a module: identifiers joined by dots."""
    return all(part.isidentifier() for part in path.split("."))


def import_module(path: str, what: str) -> ModuleType:
    """Import the module at a path that a user has named; `what` it is, such as `method module`, is for messages."""
    if not is_import_path(path):
        raise ComponentError(
            f"no {what} `{shortened(path)}`: that is not a valid import path. Write names joined by dots, such as "
            "my_lab.module, and put the folder that contains my_lab on PYTHONPATH."
        )
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        raise ComponentError(f"no {what} `{shortened(path)}`: {error}. Check the name and PYTHONPATH.") from error
    except (Exception, SystemExit) as error:
        raise ComponentError(str(failed(f"the {what} `{path}` can't be imported", error))) from error


def import_object(module_name: str, name: str, what: str) -> Any:
    """Return an object of a module that a user or a run folder has named, or raise a ComponentError."""
    if _is_unrelated(module_name):
        raise ComponentError(
            f"no {what} `{shortened(name)}`: `{shortened(module_name)}` is a part of Python, or of an installed "
            "package that doesn't require icalib, so it was not imported. Name a module of your own; an installed "
            "package lists icalib among its dependencies."
        )
    module = import_module(module_name, what)
    if not hasattr(module, name):
        hint = did_you_mean(name, vars(module)) or " Check the name."
        raise ComponentError(
            f"no {what} `{shortened(name)}`: the module {module_name} ({module.__file__}) has none of that name.{hint}"
        )
    return getattr(module, name)


def _is_unrelated(path: str) -> bool:
    """Whether a module comes with Python or a package without icalib: importing one runs code, whoever names it."""
    top = path.partition(".")[0]
    if top == "icalib" or path in sys.modules:
        return False
    names = importlib.metadata.packages_distributions().get(top, ())
    extends = (_extends_icalib(importlib.metadata.distribution(name)) for name in names)
    return top in sys.stdlib_module_names or (bool(names) and not any(extends))


def _extends_icalib(package: importlib.metadata.Distribution) -> bool:
    requires = any(re.match(r"icalib(?![\w.-])", line) for line in package.requires or ())
    return requires or any(point.group.startswith("icalib.") for point in package.entry_points)


def docstring(path: str) -> str | None:
    """Return the docstring of a module without running it; None if it has no docstring or no source."""
    source = _source(path)
    return None if source is None else ast.get_docstring(ast.parse(source))


def _source(path: str) -> str | None:
    """Return the source of a module without importing the packages around it, as `importlib.util.find_spec` would."""
    folders: Sequence[str] | None = None
    spec: ModuleSpec | None = None
    names = path.split(".")
    for depth in range(1, len(names) + 1):
        found = (finder.find_spec(".".join(names[:depth]), folders) for finder in sys.meta_path)
        spec = next((each for each in found if each is not None), None)
        if spec is None:
            return None
        folders = spec.submodule_search_locations
    return spec.loader.get_source(path) if spec and isinstance(spec.loader, InspectLoader) else None


def failed(what: str, error: BaseException) -> IcalibError:
    """Return the error for a user's code that raised one; what icalib itself raised stays as it is."""
    if isinstance(error, IcalibError):
        return error
    frames = traceback.extract_tb(error.__traceback__)[1:]  # the first is the caller of that code
    theirs = [frame for frame in frames if not frame.filename.startswith(_NOT_THEIRS)]
    places = [(frame.filename, frame.lineno) for frame in theirs or frames]
    if isinstance(error, SyntaxError):
        places.append((str(error.filename), error.lineno))
    where = "".join(f" ({file}, line {line})" for file, line in places[-1:])
    return SettingError(f"{what}: {type(error).__name__}: {shortened(str(error), 300)}{where}. Correct it.")


T = TypeVar("T")


@dataclass(frozen=True)
class Extensions(Generic[T]):
    """The known components of one kind, by name."""

    kind: type[T]
    setting: str  # that takes a name, for messages
    group: str  # of entry points, in which other packages register theirs
    builtin: Mapping[str, str]  # import path (`module:name`) of icalib's own, which no entry point replaces

    def names(self) -> Iterator[str]:
        """Yield the names of all components, icalib's own first."""
        yield from self.builtin
        yield from (name for name in self._installed() if name not in self.builtin)

    def load(self, name: str) -> T:
        """Return the component with a name (`udc`) or at an import path (`my_lab.readers:zendesk`)."""
        module_name, _, attribute = self._path(name).partition(":")
        found = import_object(module_name, attribute, f"object for {self.setting}")
        if not isinstance(found, self.kind):
            raise SettingError(
                f'{self.setting} "{name}" is an object of type {type(found).__name__}. Expected an instance of '
                f"{self.kind.__module__}.{self.kind.__name__}. Define one in that module and name it."
            )
        return found

    def module_outside(self, name: str) -> str | None:
        """Return the module of a component that isn't icalib's own; None for those."""
        return None if name in self.builtin else self._path(name).partition(":")[0]

    def _path(self, name: str) -> str:
        return self.builtin.get(name) or (name if ":" in name else self._installed_path(name))

    def _installed(self) -> dict[str, str]:
        """Return the import paths in the entry-point group; this reads the metadata of all installed packages."""
        return {point.name: point.value for point in importlib.metadata.entry_points(group=self.group)}

    def _installed_path(self, name: str) -> str:
        installed = self._installed()
        if name not in installed:
            names = list(self.names())
            raise SettingError(
                f'{self.setting} "{shortened(name)}" is unknown. Expected one of {", ".join(names)}, or an import path '
                f"such as my_lab.module:name.{did_you_mean(name, names, 3)}"
            )
        return installed[name]
