"""Compositions, one file each: a module `name.py` with a function `method()` is the method `name`.

The package can be called: `icalib.methods()` lists what it contains.
"""

from __future__ import annotations

import sys
from types import ModuleType


class _Methods(ModuleType):
    """This module; `icalib.methods` is the package and, as part of the Python API, a function too."""

    def __call__(self) -> dict[str, str]:
        """Return each method's name with the first line of its description."""
        from icalib.methods.catalogue import describe, method_names

        return {name: describe(name) for name in method_names()}


sys.modules[__name__].__class__ = _Methods
