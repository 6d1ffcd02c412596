"""Ubuntu Dialogue Corpus (Lowe et al. 2015) as CSV.

train: `Context,Utterance,Label` (the rows labelled 1 are dialogues); valid and test: `Context,Ground Truth
Utterance,Distractor_0..8` (ready pools). `__eou__` ends an utterance, `__eot__` a speaker's turn.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from icalib.core.errors import DataError
from icalib.data.schema import Dialogue, Pool
from icalib.data.sources.base import Reader, Source, alternating, pool_from, records_in, spaced
from icalib.data.sources.files import files_in, first_line, required_files, required_split, split_in_name
from icalib.data.sources.records import Raw, build
from icalib.data.sources.rows import read_rows, row_of

TRAIN_HEADER = "Context,Utterance,Label"
POOL_HEADER = "Context,Ground Truth Utterance,"


def _open(path: Path) -> Source:
    """Open one CSV file, or a folder with train.csv, valid.csv and test.csv."""
    files = required_files(path, ".csv")
    dialogue_files = [file for file in files if first_line(file) == TRAIN_HEADER]
    pool_files = [file for file in files if file not in dialogue_files]
    for file in pool_files:
        if not (header := first_line(file)).startswith(POOL_HEADER):
            cure = f'Expected "{TRAIN_HEADER}" or "{POOL_HEADER}Distractor_0,...".'
            raise DataError(f'found the header "{header[:60]}"', cure, path=file, line=1)
        required_split(file)
    return Source(
        files,
        records_in(dialogue_files, read_rows, _dialogue),
        records_in(pool_files, read_rows, _pool, "pool_id"),
        last_turn_only=True,
    )


def _detects(path: Path) -> bool:
    headers = map(first_line, files_in(path, ".csv"))
    return any(header == TRAIN_HEADER or header.startswith(POOL_HEADER) for header in headers)


def _turns(context: str) -> list[dict[str, Any]]:
    """Return the utterances of a context: the turn before the response is the user's, the one before it the agent's."""
    turns = [turn for turn in context.split("__eot__") if turn.replace("__eou__", "").strip()]
    return [
        {**turn, "text": spaced(text)}
        for turn in alternating(turns)
        for text in turn["text"].split("__eou__")
        if text.strip()
    ]


def _response(text: str) -> str:
    return spaced(text.replace("__eou__", " ").replace("__eot__", " "))


def _dialogue(raw: Raw) -> Dialogue | None:
    context, response, label = row_of(raw).values()
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
    context, right, *wrong = row_of(raw).values()
    split = required_split(raw.path)
    pool_id = f"udc-{split}-{raw.line}"
    return pool_from(raw, pool_id, split, _turns(context), [_response(right)], map(_response, wrong), "ubuntu")


udc = Reader(_open, _detects)
