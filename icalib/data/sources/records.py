"""The contract of corpus readers: a `Reader` opens a path as a `Source`, whose raw records are validated one by one."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from icalib.core.errors import DataError
from icalib.core.files import content_digest, file_digest
from icalib.core.text import abbreviated, first_problem, listed, shortened
from icalib.data.schema import NONE_RIGHT, AnsweredContext, Dialogue, Pool, Split

OnReject = Callable[[DataError, str], None]
"""Receives each record that is not valid, with its raw text; reading then continues with the next record."""

T = TypeVar("T")
Model = TypeVar("Model", bound=BaseModel)
SKIP_CURE = "Fix the record, or leave such records out with --skip-bad"


@dataclass(frozen=True)
class Raw:
    """One record as written in its file."""

    path: Path
    line: int
    """Number of the record's first line, from 1."""
    text: str
    value: Any = None
    """What the text holds, where reading the file has parsed it already."""
    cure: str = SKIP_CURE
    """What to do if the record is not valid."""
    number: int = 0
    """Index of the record in its file, from 1, where several records may be on one line; 0: the line counts."""
    problem: str = ""
    """Why the record can't be read, whatever it holds; it is then refused before it is parsed."""

    def error(self, found: str, cure: str = "", field: str = "") -> DataError:
        """Return a DataError that points at this record."""
        place: dict[str, Any] = {"path": self.path, "line": self.line, "record": self.number, "field": field}
        return DataError(found, cure or f"{self.cure}.", **place)


def joined(members: list[Raw]) -> Raw:
    """Return records as one, which begins where the first one does; its `value` is the tuple of them."""
    first = members[0]
    text = "\n".join(raw.text for raw in members)
    return Raw(first.path, first.line, text, tuple(members), number=first.number)


def accepted(raws: Iterable[Raw], parse: Callable[[Raw], T | None], on_reject: OnReject | None) -> Iterator[T]:
    """Parse raw records, leaving out those for which `parse` returns None; invalid ones go to `on_reject`, if given."""
    for raw in raws:
        try:
            record = _parsed(raw, parse)
        except DataError as error:
            if on_reject is None:
                raise
            on_reject(error, raw.text)
        else:
            if record is not None:
                yield record


def _parsed(raw: Raw, parse: Callable[[Raw], T]) -> T:
    refuse_bad_bytes(raw)
    try:
        return parse(raw)
    except UnicodeEncodeError:  # JSON can spell what no file can hold
        raise raw.error("found half of a surrogate pair, which is no character") from None


def unique(parse: Callable[[Raw], T | None], field: str, cure: str = "") -> Callable[[Raw], T | None]:
    """Return a function like `parse` that refuses a record whose id, in `field`, an earlier record has used."""
    first: dict[str, tuple[Path, int, int]] = {}

    def parse_unique(raw: Raw) -> T | None:
        record = parse(raw)
        if record is None:
            return None
        record_id: str = getattr(record, field)
        if record_id in first:
            path, line, number = first[record_id]
            where = f"on line {line}" + (f", record {number}" if number else "")
            where += f" of {path}" if path != raw.path else ""
            raise raw.error(f'{field} "{shortened(record_id)}" was used before, {where}', cure, field=field)
        first[record_id] = raw.path, raw.line, raw.number
        return record

    return parse_unique


def refuse_bad_bytes(raw: Raw) -> None:
    """Refuse a record with a `problem`, or with bytes that aren't UTF-8 (`read_lines` keeps them as surrogates); of
    `joined` ones the error names the one that has them.
    """
    for member in raw.value if isinstance(raw.value, tuple) else ():
        if isinstance(member, Raw):
            refuse_bad_bytes(member)
    if raw.problem:
        raise raw.error(f"found {raw.problem}")
    if bad := re.search("[\udc80-\udcff]", raw.text):
        raise raw.error(
            f"byte 0x{ord(bad[0]) - 0xDC00:02x} at character {bad.start() + 1} is not UTF-8",
            f"Save the file as UTF-8. {raw.cure}.",
        )


def build(model: type[Model], value: Any, raw: Raw, names: Mapping[str, str] | None = None) -> Model:
    """Validate the fields of a record; `names` has the source's own names of our fields, for the message."""
    if not isinstance(value, dict):
        raise raw.error(f"found {abbreviated(value)} where a JSON object was expected")
    try:
        return model.model_validate(value)
    except ValidationError as invalid:
        problem = first_problem(invalid)
        field = ".".join((names or {}).get(part, part) for part in problem.path)
        raise raw.error(problem.found, f"Expected: {problem.expected}. {raw.cure}.", field) from None


def parse_json(raw: Raw) -> Any:
    """Return the record's text as a JSON value; DataError where it isn't one."""
    try:
        return json.loads(raw.text)
    except json.JSONDecodeError as error:
        raise raw.error(f"broken JSON at character {error.pos + 1}: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise raw.error(f"JSON that cannot be read: {error}") from None


M = TypeVar("M", Dialogue, Pool, AnsweredContext)


def _nothing(on_reject: OnReject | None) -> Iterator[Any]:
    return iter(())


@dataclass(frozen=True)
class Source:
    """An opened source: whole dialogues, ready pools, or some of each (the Ubuntu corpus)."""

    files: tuple[Path, ...]
    """Everything that is read, in order."""
    dialogues: Callable[[OnReject | None], Iterator[Dialogue]] = _nothing
    """Streams the dialogues; without `on_reject` the first record that is not valid raises DataError."""
    pools: Callable[[OnReject | None], Iterator[Pool]] = _nothing
    answers: Callable[[OnReject | None], Iterator[AnsweredContext]] = _nothing
    """Streams contexts with their right answers, for which wrong ones are mined."""
    last_turn_only: bool = False
    """The last utterance of each dialogue is its only response (contexts of such sources overlap)."""
    keeps_all_candidates: bool = True
    """Ready pools keep all their candidates unless a number was asked for; false: no more than the default, too, the
    first right and wrong ones."""
    accepted_only: bool = False
    """The right candidates of its ready pools are accepted answers."""
    understood: str = ""
    """One line for the user: what was guessed."""
    left_out: Counter[str] = field(default_factory=Counter[str])
    """Counts what is left out without being an error, by its description; reading adds to it."""
    reader: str = ""
    """Name of the reader; `open_source` sets it."""
    unread: tuple[str, ...] = ()
    """Names of the folder's files and folders that aren't read: other kinds of files, or without a split in their names
    where others have one; `open_source` sets them."""

    @property
    def is_of_pools(self) -> bool:
        """Whether it has ready pools only, for which no wrong candidate is mined."""
        return self.dialogues is _nothing and self.answers is _nothing

    @property
    def has_whole_pools(self) -> bool:
        """Whether it has ready pools that keep all their candidates unless a number was asked for."""
        return self.keeps_all_candidates and self.pools is not _nothing

    @property
    def not_read(self) -> str:
        """A line for the user that names the files of `unread`; empty if there are none."""
        if not self.unread:
            return ""
        why = "files of one kind are read, not of folders, and only those with a split in their names if some have one"
        return f"not read: {listed(self.unread)} ({why})"

    def digest(self) -> str:
        """Return a digest of the reader's name and of the files' bytes and names (names say the split)."""
        return content_digest([self.reader, *([file.name, file_digest(file)] for file in self.files)])


@dataclass(frozen=True)
class Reader:
    """A corpus format."""

    open: Callable[..., Source]
    """Opens a file or folder; raises DataError if it cannot be of this format. Called with the path and, as keywords,
    its `options`, which are empty where the user hasn't set them."""
    detects: Callable[[Path], bool] = lambda path: False
    """Whether a file or folder that exists looks like this format, from its name or first record; DataError if it is
    damaged. Without it the format is read only when `--format` names it."""
    options: tuple[str, ...] = ()
    """Which of the options of `open_source` its `open` takes: `speakers`, `columns`."""


def records_in(
    files: Iterable[T],
    read: Callable[[T], Iterator[Raw]],
    parse: Callable[[Raw], M | None],
    unique_field: str = "dialog_id",
) -> Callable[[OnReject | None], Iterator[M]]:
    """Return the `dialogues`, `pools` or `answers` of a source.

    `read` yields the raw records of a file; `parse` makes our record of one, None to leave it out, or raises DataError.
    No two records may share `unique_field`: `dialog_id`, or `pool_id` of pools.
    """
    return lambda on_reject: accepted(chain.from_iterable(map(read, files)), unique(parse, unique_field), on_reject)


def spaced(value: Any) -> Any:
    """Return a text with every run of white space as one space; any other value as it is."""
    return " ".join(value.split()) if isinstance(value, str) else value


def alternating(texts: Iterable[str]) -> tuple[dict[str, Any], ...]:
    """Return the utterances of a two-party context without speakers: the last one is the user's."""
    turns = list(texts)
    return tuple(
        {"speaker": "agent" if (len(turns) - index) % 2 == 0 else "user", "text": text}
        for index, text in enumerate(turns)
    )


def pool_from(
    raw: Raw,
    pool_id: str,
    split: Split | None,
    context: Iterable[Any],
    right: Sequence[str],
    wrong: Iterable[str],
    domain: str,
    dialog_id: str = "",
) -> Pool:
    """Return a ready pool with the right candidates first; without `dialog_id` it is a dialogue of its own."""
    first = [spaced(text) for text in right]
    candidates = [*first, *(text for text in map(spaced, wrong) if text)]
    if len(candidates) < 2:
        raise raw.error("found one candidate only", f"A pool needs two or more. {SKIP_CURE}.", "candidates")
    value = {
        "pool_id": pool_id,
        "dialog_id": dialog_id or pool_id,
        "domain": domain,
        "split": split,
        "context": list(context),
        "candidates": candidates,
        "label": 0 if first else NONE_RIGHT,
        "also_right": range(1, len(first)),
    }
    return build(Pool, value, raw)
