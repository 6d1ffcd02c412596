"""Errors that a user can fix. A message says what was found and where, what was expected, and what to do."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any


class IcalibError(Exception):
    """An error that the user can fix; its message says how. The command line prints it without a traceback."""


class DataError(IcalibError):
    """A record that can't be used: where it is (file, 1-based line, its 1-based number where several may be on a line,
    dotted field), what was found, and the cure."""

    def __init__(
        self, found: str, cure: str, *, path: str | Path = "", line: int = 0, record: int = 0, field: str = ""
    ) -> None:
        places = (
            str(path),
            f"line {line}" if line else "",
            f"record {record}" if record else "",
            f"field `{field}`" if field else "",
        )
        where = ", ".join(filter(None, places))
        super().__init__(f"{where + ': ' if where else ''}{found}. {cure}")
        self.found, self.cure = found, cure
        self.path, self.line, self.record, self.field = str(path), line, record, field

    def __reduce__(self) -> tuple[Any, ...]:
        place = {"path": self.path, "line": self.line, "record": self.record, "field": self.field}
        return partial(DataError, self.found, self.cure, **place), ()


class SettingError(IcalibError):
    """A setting that is out of its range, misspelt, or in conflict with another."""


class ComponentError(SettingError):
    """A component that there isn't, or that can't be imported."""


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
    """A language model's endpoint can't be reached, or refused a request; `found` is what it did."""

    def __init__(self, found: str, cure: str) -> None:
        super().__init__(f"{found}. {cure}. Answers so far are kept; the same command asks for the rest.")
        self.found = found


class RefusedRequestError(EndpointError):
    """A language model's endpoint refused a request for what is in it, as content filters do."""


class PosteriorError(IcalibError):
    """A head's posterior is missing, or older than its weights."""


class ExportError(IcalibError):
    """An exported ranker doesn't compute what the run's ranker does."""
