"""Components found by name: those of icalib, those of installed packages (entry points), any other by import path."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Generic, TypeVar

from icalib.core.errors import SettingError
from icalib.core.imports import import_object
from icalib.core.text import shortened

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
        path = self.builtin.get(name) or (name if ":" in name else self._installed_path(name))
        module_name, _, attribute = path.partition(":")
        found = import_object(module_name, attribute, f"object for {self.setting}")
        if not isinstance(found, self.kind):
            raise SettingError(
                f'{self.setting} "{name}" is an object of type {type(found).__name__}. Expected an instance of '
                f"{self.kind.__module__}.{self.kind.__name__}. Define one in that module and name it."
            )
        return found

    def _installed(self) -> dict[str, str]:
        """Return the import paths in the entry-point group; this reads the metadata of all installed packages."""
        return {point.name: point.value for point in importlib.metadata.entry_points(group=self.group)}

    def _installed_path(self, name: str) -> str:
        installed = self._installed()
        if name not in installed:
            names = list(self.names())
            near = get_close_matches(name, names, n=3)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            raise SettingError(
                f'{self.setting} "{shortened(name)}" is unknown. Expected one of {", ".join(names)}, or an import path '
                f"such as my_lab.module:name.{hint}"
            )
        return installed[name]
