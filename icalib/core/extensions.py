"""Components found by name: those of icalib, those of installed packages (entry points), any other by import path."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Generic, TypeVar

from icalib.core.errors import SettingError
from icalib.core.imports import failed, is_import_path
from icalib.core.text import shortened

T = TypeVar("T")


@dataclass(frozen=True)
class Extensions(Generic[T]):
    """The known components of one kind, by name.

    Args:
        kind: the class that every component is an instance of.
        setting: the option or setting that takes a name; error messages begin with it.
        group: the entry-point group in which other packages register theirs.
        builtin: import path (`module:name`) of each of icalib's own; an entry point cannot replace one of them.
    """

    kind: type[T]
    setting: str
    group: str
    builtin: Mapping[str, str]

    def names(self) -> Iterator[str]:
        """Yield the names of all components, icalib's own first."""
        yield from self.builtin
        yield from (name for name in self._installed() if name not in self.builtin)

    def load(self, name: str) -> T:
        """Return the component with a name (`udc`) or at an import path (`my_lab.readers:zendesk`).

        Raises:
            SettingError: no such name or path, or an object of another kind.
        """
        found = self._imported(self.builtin.get(name) or (name if ":" in name else self._installed_path(name)))
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

    def _imported(self, path: str) -> object:
        module_name, _, name = path.partition(":")
        if not (name.isidentifier() and is_import_path(module_name)):
            raise SettingError(
                f'{self.setting} "{shortened(path)}" is not a valid import path. Expected `module:name`, such as '
                "my_lab.module:name. Correct it."
            )
        try:
            module = importlib.import_module(module_name)
        except ImportError as error:
            raise SettingError(
                f'{self.setting} "{path}" cannot be imported: {error}. Expected a module that Python can find. Correct '
                "the name, install its package, or add its folder to PYTHONPATH."
            ) from error
        except (Exception, SystemExit) as error:
            raise failed(f'{self.setting} "{path}" cannot be imported', error) from error
        try:
            return getattr(module, name)
        except AttributeError:
            near = get_close_matches(name, vars(module), n=1)
            hint = f" Did you mean {module_name}:{near[0]}?" if near else ""
            raise SettingError(
                f'{self.setting} "{path}": the module {module_name} ({module.__file__}) has no `{name}`. Expected a '
                f"{self.kind.__name__} of that name. Correct the name or define it there.{hint}"
            ) from None
