"""Errors that a user can fix. A message says what was found and where, what was expected, and what to do."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any


class IcalibError(Exception):
    """An error that the user can fix; its message says how. The command line prints it without a traceback."""


class DataError(IcalibError):
    """A record that can't be used: where it is (file, 1-based line, dotted field), what was found, and the cure."""

    def __init__(self, found: str, cure: str, *, path: str | Path = "", line: int = 0, field: str = "") -> None:
        where = ", ".join(
            part for part in (str(path), f"line {line}" if line else "", f"field `{field}`" if field else "") if part
        )
        super().__init__(f"{where + ': ' if where else ''}{found}. {cure}")
        self.found, self.cure = found, cure
        self.path, self.line, self.field = str(path), line, field

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(DataError, self.found, self.cure, path=self.path, line=self.line, field=self.field), ()


class SettingError(IcalibError):
    """A setting that is out of its range, misspelt, or in conflict with another."""


class RunFolderError(IcalibError):
    """A run folder or cache entry that this version can't use."""


class DamagedFileError(RunFolderError):
    """A file that icalib wrote can't be read, or has changed since."""

    def __init__(self, path: str | Path, found: str, cure: str = "") -> None:
        cure = cure or "Restore it from a copy, or run the command that wrote it again with --fresh."
        super().__init__(f"{path} {found}. {cure}")
        self.path, self.found, self.cure = str(path), found, cure

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.found, self.cure)


class Abandoned(IcalibError):
    """A training was stopped from outside, as a sweep's pruner stops that of a poor trial."""


class StorageError(IcalibError):
    """A disk or object store refused an operation."""


class ClusterError(IcalibError):
    """A cluster can't be reached, or refused a request."""


class EndpointError(IcalibError):
    """A language model's endpoint can't be reached, or refused a request."""


class PosteriorError(IcalibError):
    """A head's posterior is missing, or older than its weights."""


class ExportError(IcalibError):
    """An exported ranker doesn't compute what the run's ranker does."""
