"""Importing what users name."""

from __future__ import annotations

import ast
import importlib
import sys
import traceback
from collections.abc import Sequence
from difflib import get_close_matches
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from icalib.core.errors import IcalibError, SettingError
from icalib.core.text import shortened


def is_import_path(path: str) -> bool:
    """Whether a text could name a module: identifiers joined by dots."""
    return all(part.isidentifier() for part in path.split("."))


def import_module(path: str, what: str) -> ModuleType:
    """Import the module at a path that a user has named; `what` it is, such as `method module`, is for messages."""
    if not is_import_path(path):
        raise SettingError(
            f"no {what} `{shortened(path)}`: that is not a valid import path. Write names joined by dots, such as "
            "my_lab.module, and put the folder that contains my_lab on PYTHONPATH."
        )
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        raise SettingError(f"no {what} `{shortened(path)}`: {error}. Check the name and PYTHONPATH.") from error
    except (Exception, SystemExit) as error:
        raise failed(f"the {what} `{path}` can't be imported", error) from error


def import_object(module_name: str, name: str, what: str) -> Any:
    """Return an object of a module that a user has named, or raise a SettingError."""
    module = import_module(module_name, what)
    if not hasattr(module, name):
        near = get_close_matches(name, vars(module), n=1)
        hint = f" Did you mean `{near[0]}`?" if near else " Check the name."
        raise SettingError(
            f"no {what} `{shortened(name)}`: the module {module_name} ({module.__file__}) has none of that name.{hint}"
        )
    return getattr(module, name)


def binds_class(path: str, name: str) -> bool:
    """Whether a module's source defines or imports a class, without running it; True where this can't be known."""
    source = None if path in sys.modules else _source(path)
    if source is None:
        return True
    try:
        statements = ast.parse(source).body
    except (SyntaxError, ValueError):
        return True  # the import reports it
    return any(
        (isinstance(node, ast.ClassDef) and node.name == name and bool(node.bases))
        or (isinstance(node, ast.ImportFrom) and any((alias.asname or alias.name) == name for alias in node.names))
        for node in statements
    )


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
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return SettingError(f"{what}: {type(error).__name__}: {shortened(str(error), 300)}{where}. Correct it.")
