"""Open a source of any known form; the form is told by name and content, or set."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from icalib.core.errors import DataError, SettingError
from icalib.data.sources.base import Source, json_members, plain_name, read_lines
from icalib.data.sources.icast import is_icast, open_icast
from icalib.data.sources.jsonl import open_jsonl
from icalib.data.sources.mantis import open_mantis, open_mantis_tsv
from icalib.data.sources.msdialog import open_msdialog
from icalib.data.sources.udc import is_udc_header, open_udc

FORMATS: dict[str, Callable[[Path], Source]] = {
    "jsonl": open_jsonl,
    "msdialog": open_msdialog,
    "mantis": open_mantis,
    "mantis-tsv": open_mantis_tsv,
    "udc": open_udc,
    "icast": open_icast,
}


def open_source(path: str | Path, format: str | None = None) -> Source:
    """Open a file or folder of dialogues or pools.

    Args:
        path: what to read; every file may be gzipped.
        format: one of `FORMATS`; None tells it by name and content.

    Raises:
        SettingError: no such format, or a form that can't be told.
        DataError: no such path, an empty file, a file that can't be read.
    """
    path = Path(path)
    if format is not None and format not in FORMATS:
        raise SettingError(f'--format "{format}" is unknown. Choose one of: {", ".join(FORMATS)}.')
    try:
        if not path.exists():
            raise DataError("no such file or folder", "Check the path.", path=path)
        source = FORMATS[format or detect(path)](path)
        for file in source.files:
            _refuse_empty(file)
    except OSError as error:
        raise DataError(f"can't be read: {error.strerror or error}", "Check its permissions.", path=path) from error
    return source


def detect(path: Path) -> str:
    """Name of the form in which `path` is written.

    Raises:
        SettingError: none of the known forms.
    """
    form = _folder_form(path) if path.is_dir() else _file_form(path)
    if form is None:
        raise SettingError(
            f"{path}: can't tell what form this is. Name it with --format, one of: {', '.join(FORMATS)}."
        )
    return form


def _folder_form(path: Path) -> str | None:
    if is_icast(path):
        return "icast"
    names = [plain_name(file) for file in path.iterdir()]
    by_suffix = {".csv": "udc", ".tsv": "mantis-tsv", ".json": "mantis"}
    return next((form for suffix, form in by_suffix.items() if any(n.endswith(suffix) for n in names)), None)


def _file_form(path: Path) -> str | None:
    _refuse_empty(path)
    name, first = plain_name(path), next(read_lines(path)).text
    if name.endswith(".jsonl") or _is_dialogue(first):
        return "jsonl"
    if first.lstrip().startswith("{"):
        return _json_form(path)
    if is_udc_header(first):
        return "udc"
    return "mantis-tsv" if first[:2] in ("0\t", "1\t") else None


def _is_dialogue(line: str) -> bool:
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and "utterances" in value


def _json_form(path: Path) -> str | None:
    """MSDialog says `tags`, `vote` and `affiliation`, MANtIS `intent` and `votes`."""
    first = next(json_members(path), None)
    if first is None:
        raise DataError("the JSON object is empty", "Choose a file with dialogues.", path=path)
    _, value = first.value
    if not isinstance(value, dict) or not isinstance(value.get("utterances"), list):
        return None
    fields = {field for utterance in value["utterances"] if isinstance(utterance, dict) for field in utterance}
    return "mantis" if fields & {"intent", "votes", "user_name"} else "msdialog"


def _refuse_empty(path: Path) -> None:
    if next(read_lines(path), None) is None:
        raise DataError("the file is empty", "Choose a file with dialogues.", path=path)
