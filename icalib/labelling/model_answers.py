"""A language model's answers: JSON lines, added to one by one, that are the cache of `label ask` and are imported."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias

from pydantic import AwareDatetime, BaseModel, Field

from icalib.core.errors import DataError, SettingError
from icalib.core.locks import FileLock
from icalib.data.sources.records import Raw, build, parse_json, refuse_bad_bytes
from icalib.labelling.annotations import MODEL_PREFIX, Annotation, Answer

_NUMBER = re.compile(r"[\s*_`\"'.()\[\]]*(\d{1,6})[\s*_`\"'.()\[\]]*")
_BEGINNING = b'{"request": "'  # of every line
Key: TypeAlias = tuple[str, str]
"""A request's digest, and the id of the pool that it was about."""
_CURE = "Name a file of `icalib label ask`, or remove the line: its pool is then asked about again"


class ModelAnswer(BaseModel):
    """One answer; `candidates` are those that the model saw, `request` is the digest of model, prompt and pool."""

    request: str
    pool_id: str
    model: str = Field(min_length=1)
    candidates: tuple[str, ...]
    answer: int | None = Field(ge=0)
    """Number of the right candidate, from 1; 0: none is right; null: the reply was unclear."""
    reply: str
    """What the model wrote, cut off."""
    when: AwareDatetime

    def annotation(self) -> Annotation | None:
        """Return it as annotations are kept, with the model as the annotator; None where it is unclear."""
        if self.answer is None:
            return None
        return Annotation(self.pool_id, MODEL_PREFIX + self.model, self.when, (self.answer - 1,) if self.answer else ())


def parsed_answer(reply: str, num_candidates: int) -> int | None:
    """Return the number that a reply consists of; None, never a guess, if it has other words or no such candidate.

    What a model thinks aloud before `</think>` is left out.
    """
    found = _NUMBER.fullmatch(reply.rpartition("</think>")[2])
    number = int(found[1]) if found else -1
    return number if 0 <= number <= num_candidates else None


def is_record(record: Mapping[str, Any]) -> bool:
    """Return whether a record of a JSON file is a model's answer."""
    return "request" in record and "answer" in record


def read_record(raw: Raw) -> Iterator[Answer]:
    """Yield the answer in a record; a DataError says which field is not valid."""
    found = _record(raw)
    yield Answer(raw, found.pool_id, found.candidates, found.annotation())


def _record(raw: Raw) -> ModelAnswer:
    found = build(ModelAnswer, raw.value, raw)
    if (found.answer or 0) > len(found.candidates):
        raise raw.error(f"found {found.answer} of {len(found.candidates)} candidates", field="answer")
    return found


class AnswerFile:
    """A file of answers that one process at a time adds to; a line that a crash has cut off is removed.

    A DataError says that the file has something else, a SettingError that another process adds to it.
    """

    def __init__(self, path: Path) -> None:
        self._lock, self._adding = FileLock(path), Lock()
        if not self._lock.acquire(wait=False):
            raise SettingError(f"{path} is in use: another process asks a model. Wait, or name another file.")
        try:
            self._open(path)
        except BaseException:
            self._lock.release()  # a notebook keeps the error, and with it this object
            raise

    def _open(self, path: Path) -> None:
        *complete, cut = path.read_bytes().split(b"\n")
        self.answers: dict[Key, ModelAnswer] = {}
        for number, line in enumerate(complete, 1):
            raw = Raw(path, number, line.decode("utf-8", "surrogateescape"), cure=_CURE)
            refuse_bad_bytes(raw)
            found = _record(replace(raw, value=parse_json(raw)))
            self._note(found)
        if not (cut.startswith(_BEGINNING) or _BEGINNING.startswith(cut)):
            raise DataError("ends in something that is no answer of a model", f"{_CURE}.", path=path)
        self._file = path.open("r+", encoding="utf-8")
        self._file.truncate(sum(len(line) + 1 for line in complete))
        self._file.seek(0, 2)

    def add(self, answer: ModelAnswer) -> None:
        """Write an answer at once."""
        with self._adding:
            self._file.write(json.dumps(answer.model_dump(mode="json"), ensure_ascii=False) + "\n")
            self._file.flush()
            self._note(answer)

    def _note(self, answer: ModelAnswer) -> None:
        self.answers[answer.request, answer.pool_id] = answer

    def close(self) -> None:
        """Let other processes add to it."""
        self._file.close()
        self._lock.release()
