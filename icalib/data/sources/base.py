"""What every reader of a source shares: raw records with their place, whole-record errors, plain or gzipped files."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from icalib.core.errors import DataError, SettingError
from icalib.core.files import content_digest, file_digest
from icalib.data.schema import Dialogue, Pool, Split

OnReject = Callable[[DataError, str], None]
"""Hears of a record that can't be used and of its raw text; the reader then goes on with the next record."""

T = TypeVar("T")
Model = TypeVar("Model", bound=BaseModel)
SKIP_CURE = "Mend the record, or leave such records out with --skip-bad"
GZIP_MAGIC = b"\x1f\x8b"
JSON_CHUNK = 1 << 18
JSON_MEMBER_LIMIT = 1 << 26


@dataclass(frozen=True)
class Raw:
    """One record as it stands in its file; `line` is where it begins (1-based)."""

    path: Path
    line: int
    text: str
    value: Any = None
    cure: str = SKIP_CURE

    def error(self, found: str, cure: str = "", field: str = "") -> DataError:
        """A DataError that points at this record."""
        return DataError(found, cure or f"{self.cure}.", path=self.path, line=self.line, field=field)


def no_dialogues(on_reject: OnReject | None) -> Iterator[Dialogue]:
    """The dialogues of a source that holds pools only."""
    return iter(())


def no_pools(on_reject: OnReject | None) -> Iterator[Pool]:
    """The pools of a source that holds dialogues only."""
    return iter(())


@dataclass(frozen=True)
class Source:
    """An opened source: whole dialogues, ready pools, or some of each (the Ubuntu corpus).

    Attributes:
        name: the format's name.
        files: everything that is read, in order.
        dialogues: streams the dialogues; without `on_reject` the first bad record raises DataError.
        pools: streams the ready pools, in the same way.
        last_turn_only: the last utterance of each dialogue is its only response (contexts of such sources overlap).
    """

    name: str
    files: tuple[Path, ...]
    dialogues: Callable[[OnReject | None], Iterator[Dialogue]] = no_dialogues
    pools: Callable[[OnReject | None], Iterator[Pool]] = no_pools
    last_turn_only: bool = False

    def digest(self) -> str:
        """Digest of the files' bytes and names (names say the split)."""
        return content_digest([self.name, *([file.name, file_digest(file)] for file in self.files)])


def accepted(raws: Iterable[Raw], parse: Callable[[Raw], T | None], on_reject: OnReject | None) -> Iterator[T]:
    """Parse raw records (None: not wanted); bad ones go to `on_reject`, or raise without it.

    Raises:
        DataError: a bad record, and `on_reject` is None.
    """
    for raw in raws:
        try:
            refuse_bad_bytes(raw)
            record = parse(raw)
        except DataError as error:
            if on_reject is None:
                raise
            on_reject(error, raw.text)
            continue
        if record is not None:
            yield record


def unique_dialogues(parse: Callable[[Raw], Dialogue | None]) -> Callable[[Raw], Dialogue | None]:
    """`parse`, refusing a dialog_id that it has seen before."""
    first_place: dict[str, int] = {}

    def parse_unique(raw: Raw) -> Dialogue | None:
        dialogue = parse(raw)
        if dialogue is not None and first_place.setdefault(dialogue.dialog_id, raw.line) != raw.line:
            first = first_place[dialogue.dialog_id]
            raise raw.error(f'dialog_id "{dialogue.dialog_id}" was used before, on line {first}', field="dialog_id")
        return dialogue

    return parse_unique


def refuse_bad_bytes(raw: Raw) -> None:
    """Refuse a record with bytes that aren't UTF-8 (`read_lines` keeps them as lone surrogates)."""
    if bad := re.search("[\udc80-\udcff]", raw.text):
        raise raw.error(
            f"byte 0x{ord(bad[0]) - 0xDC00:02x} at character {bad.start() + 1} is not UTF-8",
            f"Save the file as UTF-8. {raw.cure}.",
        )


def build(model: type[Model], value: Any, raw: Raw, names: Mapping[str, str] | None = None) -> Model:
    """Validate a record; `names` maps our field names to the source's own, for the message.

    Raises:
        DataError: with the dotted name of the first bad field, what was found and what was expected.
    """
    if not isinstance(value, dict):
        raise raw.error(f"found {shown(value)} where a JSON object was expected")
    try:
        return model.model_validate(value)
    except ValidationError as invalid:
        first = invalid.errors(include_url=False)[0]
        field = ".".join(str((names or {}).get(str(part), part)) for part in first["loc"])
        found = "it is missing" if first["type"] == "missing" else f"found {shown(first['input'])}"
        raise raw.error(found, f"Expected: {first['msg']}. {raw.cure}.", field) from None


def shown(value: Any) -> str:
    """A value for a message, at most 60 characters of it."""
    text = json.dumps(value, ensure_ascii=True, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def parse_json(raw: Raw) -> Any:
    """The record's text as JSON.

    Raises:
        DataError: the text is no JSON.
    """
    try:
        return json.loads(raw.text)
    except json.JSONDecodeError as error:
        raise raw.error(f"broken JSON at character {error.pos + 1}: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise raw.error(f"JSON that can't be read: {error}") from None


def spaced(value: Any) -> Any:
    """A text with every run of white space as one space; anything else as it is."""
    return " ".join(value.split()) if isinstance(value, str) else value


def alternating(texts: Iterable[str]) -> tuple[dict[str, Any], ...]:
    """Utterances of an unmarked two-party context: the one before the response is the user's, and so on back."""
    turns = list(texts)
    return tuple(
        {"speaker": "agent" if (len(turns) - place) % 2 == 0 else "user", "text": text}
        for place, text in enumerate(turns)
    )


def open_bytes(path: Path) -> IO[bytes]:
    """Open a plain or gzipped file for reading; gzip is told by its first bytes, not by its name."""
    with path.open("rb") as file:
        is_gzip = file.read(2) == GZIP_MAGIC
    return cast("IO[bytes]", gzip.open(path, "rb")) if is_gzip else path.open("rb")


def damaged(path: Path, error: Exception, line: int) -> DataError:
    """A gzip file that ends too early or holds rubbish."""
    return DataError(
        f"damaged gzip data ({error})", "Get the file again, or decompress what is left.", path=path, line=line
    )


def read_lines(path: Path, cure: str = SKIP_CURE) -> Iterator[Raw]:
    """The lines of a text file with their numbers; blank lines count but are left out.

    Bytes that aren't UTF-8 become lone surrogates, so that one bad record doesn't stop the file.

    Args:
        path: plain or gzipped.
        cure: what to do about a bad record.

    Raises:
        DataError: damaged gzip data.
    """
    number = 0
    try:
        with open_bytes(path) as file:
            for number, line in enumerate(file, 1):
                text = line.decode("utf-8", "surrogateescape").rstrip("\r\n")
                text = text.removeprefix("\ufeff") if number == 1 else text
                if text.strip():
                    yield Raw(path, number, text, cure=cure)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise damaged(path, error, number) from error


class _JsonText:
    """A file's text, read as far as it is needed."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path, self.file = path, file
        self.text, self.line, self.at_end = "", 1, False
        self._tail = b""
        self.decoder = json.JSONDecoder()

    def more(self) -> None:
        """Read as much again as is held, at least one chunk; a character is never cut in two."""
        block = self.file.read(max(JSON_CHUNK, len(self.text)))
        self.at_end = not block
        data = self._tail + block
        cut = len(data) if self.at_end else _last_whole_character(data)
        self.text += data[:cut].decode("utf-8", "surrogateescape")
        self._tail = data[cut:]

    def drop(self, count: int) -> str:
        """Take characters from the front and count their lines."""
        taken, self.text = self.text[:count], self.text[count:]
        self.line += taken.count("\n")
        return taken

    def next_mark(self) -> str:
        """Skip white space; the next character, empty at the end."""
        while True:
            self.drop(len(self.text) - len(self.text.lstrip(" \t\r\n\ufeff")))
            if self.text or self.at_end:
                return self.text[:1]
            self.more()

    def expect(self, mark: str) -> None:
        """Take one mark."""
        if (found := self.next_mark()) != mark:
            raise self.broken(f'found {shown(found) if found else "the end of the file"} where "{mark}" belongs')
        self.drop(1)

    def value(self) -> tuple[str, Any]:
        """Take one whole JSON value: its text and itself."""
        self.next_mark()
        while True:
            try:
                value, end = self.decoder.raw_decode(self.text)
                if end < len(self.text) or self.at_end:
                    return self.drop(end), value
            except json.JSONDecodeError as error:
                if self.at_end or len(self.text) > JSON_MEMBER_LIMIT:
                    line = self.line + error.lineno - 1
                    raise self.broken(error.msg, line) from None
            except (ValueError, RecursionError) as error:
                raise self.broken(str(error)) from None
            self.more()

    def broken(self, found: str, line: int | None = None) -> DataError:
        """Nothing after broken JSON can be told apart, so it can't be skipped."""
        return DataError(
            f"broken JSON: {found}",
            "Mend the file or get it again (--skip-bad can't go on after this).",
            path=self.path,
            line=line or self.line,
        )


def _last_whole_character(data: bytes) -> int:
    """Where the last, perhaps unfinished UTF-8 character begins."""
    for back in range(1, min(4, len(data)) + 1):
        if data[-back] & 0xC0 != 0x80:
            return len(data) - back
    return len(data)


def json_members(path: Path) -> Iterator[Raw]:
    """Stream the members of a file that is one big JSON object; `Raw.value` is (key, value).

    Raises:
        DataError: broken JSON, or a file that isn't one object.
    """
    try:
        with open_bytes(path) as file:
            text = _JsonText(path, file)
            text.expect("{")
            closes = text.next_mark() == "}"
            while not closes:
                _, key = text.value()
                text.expect(":")
                text.next_mark()
                line = text.line
                member, value = text.value()
                yield Raw(path, line, member, (str(key), value))
                closes = text.next_mark() == "}"
                if not closes:
                    text.expect(",")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise damaged(path, error, 0) from error


def plain_name(path: Path) -> str:
    """The file's name in lower case, without .gz."""
    return path.name.lower().removesuffix(".gz")


def split_in_name(path: Path) -> Split | None:
    """The split that a file's name tells: train, valid, dev or test as a word of its own."""
    words = re.split(r"[^a-z]+", plain_name(path))
    for word, split in _SPLIT_WORDS.items():
        if word in words:
            return split
    return None


_SPLIT_WORDS: dict[str, Split] = {
    "train": "train",
    "training": "train",
    "valid": "validation",
    "validation": "validation",
    "dev": "validation",
    "test": "test",
}


def required_split(path: Path) -> Split:
    """The split that a file's name tells.

    Raises:
        SettingError: it tells none.
    """
    split = split_in_name(path)
    if split is None:
        raise SettingError(
            f"{path}: the name of a file of ready pools must say its split. "
            'Put "train", "valid" (or "dev") or "test" into the name.'
        )
    return split


def files_of(path: Path, suffix: str) -> tuple[Path, ...]:
    """The file itself, or the folder's files of this kind whose names tell a split."""
    if path.is_file():
        return (path,)
    files = tuple(file for file in sorted(path.iterdir()) if plain_name(file).endswith(suffix) and split_in_name(file))
    if not files:
        raise DataError(
            f"no {suffix} file with train, valid, dev or test in its name",
            "Name the folder that holds them, or one file.",
            path=path,
        )
    return files


def pool_from(
    raw: Raw, pool_id: str, split: Split, context: Iterable[Any], right: str, wrong: Iterable[str], source: str
) -> Pool:
    """A ready pool with the right candidate first.

    Raises:
        DataError: an empty utterance or answer, or no wrong candidate.
    """
    candidates = [spaced(right), *(text for text in map(spaced, wrong) if text)]
    if len(candidates) < 2:
        raise raw.error("found one candidate only", f"A pool needs two or more. {SKIP_CURE}.", "candidates")
    value = {
        "pool_id": pool_id,
        "dialog_id": pool_id,
        "domain": source,
        "split": split,
        "context": list(context),
        "candidates": candidates,
        "label": 0,
    }
    return build(Pool, value, raw)
