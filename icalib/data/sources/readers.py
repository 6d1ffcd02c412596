"""Open a source of any known format, which is detected or named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from icalib.core.errors import DataError, SettingError
from icalib.core.extensions import Extensions
from icalib.data.sources.base import Reader, Source
from icalib.data.sources.files import first_line

READERS = Extensions(
    Reader,
    setting="--format",
    group="icalib.readers",
    builtin={
        "jsonl": "icalib.data.sources.jsonl:jsonl",
        "icast": "icalib.data.sources.icast:icast",
        "udc": "icalib.data.sources.udc:udc",
        "mantis-tsv": "icalib.data.sources.mantis:mantis_tsv",
        "mantis": "icalib.data.sources.mantis:mantis",
        "msdialog": "icalib.data.sources.msdialog:msdialog",
    },
)
"""All readers. The order decides the format of a folder with files of several formats."""


def open_source(path: str | Path, format: str | None = None) -> Source:
    """Open a file or folder of dialogues or pools.

    Args:
        path: what to read; every file may be gzipped.
        format: a reader's name or import path; None detects it from name and content.

    Raises:
        SettingError: no such reader, or a format that cannot be detected.
        DataError: no such path, an empty file, a file that cannot be read.
    """
    path = Path(path)
    reader = READERS.load(format) if format else None
    try:
        if not path.exists():
            raise DataError("no such file or folder", "Check the path.", path=path)
        name = format or detect(path)
        source = (reader or READERS.load(name)).open(path)
        for file in source.files:
            first_line(file)
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", "Check its permissions.", path=path) from error
    return replace(source, reader=name)


def detect(path: Path) -> str:
    """Return the name of the first reader that detects its format in a file or folder.

    Raises:
        SettingError: none does.
        DataError: the file is empty.
    """
    if path.is_file():
        first_line(path)
    for name in READERS.names():
        if READERS.load(name).detects(path):
            return name
    raise SettingError(
        f"{path}: the format is unknown. Expected one of: {', '.join(READERS.names())}. Name it with --format, which "
        "also takes the import path of a reader of your own (my_lab.module:name)."
    )
