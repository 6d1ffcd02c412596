"""Ubuntu Dialogue Corpus (Lowe et al. 2015) as CSV.

train: `Context,Utterance,Label` (the rows labelled 1 are dialogues); valid and test: `Context,Ground Truth
Utterance,Distractor_0..8` (ready pools). `__eou__` ends an utterance, `__eot__` a speaker's turn.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from icalib.core.errors import DataError
from icalib.data.schema import Dialogue, Pool
from icalib.data.sources.base import Reader, Source, dialogues_in, pool_from, pools_in, spaced
from icalib.data.sources.files import files_of, first_line, holds, read_lines, required_split, split_in_name
from icalib.data.sources.records import Raw, build

TRAIN_HEADER = ("Context", "Utterance", "Label")
POOL_HEADER = ("Context", "Ground Truth Utterance")


def _open(path: Path) -> Source:
    """Open one CSV file, or a folder with train.csv, valid.csv and test.csv."""
    files = files_of(path, ".csv")
    dialogue_files = [file for file in files if _header(file) == TRAIN_HEADER]
    pool_files = [file for file in files if file not in dialogue_files]
    for file in pool_files:
        required_split(file)
    return Source(
        files,
        dialogues_in(dialogue_files, _rows, _dialogue),
        pools_in(pool_files, _rows, _pool),
        last_turn_only=True,
    )


def _detects(path: Path) -> bool:
    return holds(path, ".csv") or (path.is_file() and _is_header(first_line(path)))


def _is_header(line: str) -> bool:
    """Whether a file's first line is that of the corpus."""
    header = tuple(line.split(","))
    return header == TRAIN_HEADER or header[:2] == POOL_HEADER


def _header(file: Path) -> tuple[str, ...]:
    first = next(read_lines(file), None)
    if first is None or not _is_header(first.text):
        raise DataError(
            f'found the header "{first.text[:60] if first else ""}"',
            f'Expected "{",".join(TRAIN_HEADER)}" or "{",".join(POOL_HEADER)},Distractor_0,...".',
            path=file,
            line=1,
        )
    return tuple(first.text.split(","))


def _rows(file: Path) -> Iterator[Raw]:
    """Yield the rows after the header; a quoted field may span several lines."""
    lines = _Lines(file)
    reader = csv.reader(lines)
    try:
        next(reader)
        for row in reader:
            line, text = lines.take()
            yield Raw(file, line, text, row)
    except csv.Error as error:
        raise DataError(
            f"broken CSV: {error}",
            "Fix the file (--skip-bad cannot skip this).",
            path=file,
            line=lines.number,
        ) from error


class _Lines:
    """Feeds a CSV reader and keeps the first line number and the text of the current row."""

    def __init__(self, file: Path) -> None:
        self._lines = read_lines(file)
        self._taken: list[Raw] = []
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        for raw in self._lines:
            self.number = raw.line
            if raw.problem:
                raise raw.error(f"found {raw.problem}", "Fix the file (--skip-bad cannot skip this).")
            if raw.line > 1:
                self._taken.append(raw)
            yield raw.text + "\n"

    def take(self) -> tuple[int, str]:
        """Return line number and text of the row that the reader has just returned."""
        taken, self._taken = self._taken, []
        return taken[0].line, "\n".join(raw.text for raw in taken)


def _turns(context: str) -> list[dict[str, Any]]:
    """Return the utterances of a context: the turn before the response is the user's, the one before it the agent's."""
    turns = [turn for turn in context.split("__eot__") if turn.replace("__eou__", "").strip()]
    return [
        {"speaker": "agent" if (len(turns) - index) % 2 == 0 else "user", "text": spaced(text)}
        for index, turn in enumerate(turns)
        for text in turn.split("__eou__")
        if text.strip()
    ]


def _response(text: str) -> str:
    return spaced(text.replace("__eou__", " ").replace("__eot__", " "))


def _columns(raw: Raw, expected: str, fits: bool) -> list[str]:
    if not fits:
        raise raw.error(f"found {len(raw.value)} columns, expected {expected}")
    return raw.value


def _dialogue(raw: Raw) -> Dialogue | None:
    context, response, label = _columns(raw, "3", len(raw.value) == 3)
    if label.strip() not in ("0", "1", "0.0", "1.0"):
        raise raw.error(f'found "{label[:20]}", expected 0 or 1', field="Label")
    if float(label) == 0:
        return None
    split = split_in_name(raw.path)
    value = {
        "dialog_id": f"udc-{split or 'row'}-{raw.line}",
        "source": "udc",
        "domain": "ubuntu",
        "split": split,
        "utterances": [*_turns(context), {"speaker": "agent", "text": _response(response)}],
    }
    return build(Dialogue, value, raw, {"utterances": "Context", "text": "Utterance"})


def _pool(raw: Raw) -> Pool:
    context, right, *wrong = _columns(raw, "3 or more", len(raw.value) >= 3)
    split = required_split(raw.path)
    return pool_from(
        raw, f"udc-{split}-{raw.line}", split, _turns(context), _response(right), map(_response, wrong), "ubuntu"
    )


udc = Reader(_open, _detects)
