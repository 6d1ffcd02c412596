"""Importing what users name."""

from __future__ import annotations

import importlib
import traceback
from types import ModuleType

from icalib.core.errors import IcalibError, SettingError
from icalib.core.text import shortened


def is_import_path(path: str) -> bool:
    """Whether a text could name a module: identifiers joined by dots."""
    return all(part.isidentifier() for part in path.split("."))


def import_module(path: str, what: str) -> ModuleType:
    """Import the module at an import path that a user has named.

    Args:
        path: such as `my_lab.methods.idea7`.
        what: what the module is, for messages: `method module`.

    Raises:
        SettingError: not an import path, no such module, or a module that fails.
    """
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


def failed(what: str, error: BaseException) -> IcalibError:
    """Return the error for a user's code that raised one; what icalib itself raised stays as it is."""
    if isinstance(error, IcalibError):
        return error
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return SettingError(f"{what}: {type(error).__name__}: {shortened(str(error), 300)}{where}. Correct it.")
