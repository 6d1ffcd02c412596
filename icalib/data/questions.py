"""Questions for `icalib predict`: contexts with candidates, JSONL, a JSON array (plain or gzipped), or Parquet:

{"context": [{"speaker": "user" | "agent", "text": str}, ...], "candidates": [str, ...], "id": str | int}

`id` may be left out; candidates are two or more. An utterance may be its text alone, or lack the speaker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypeVar, cast

from pydantic import (  # fmt: skip
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from typing_extensions import TypedDict

from icalib.core.errors import DataError
from icalib.core.text import first_problem
from icalib.data.schema import Pool, Text, Utterance
from icalib.data.sources.files import read_lines
from icalib.data.sources.records import Raw, accepted, build, unique
from icalib.data.sources.rows import kind_of, read_rows, unchecked_row

M = TypeVar("M", bound=BaseModel)
_CURE = "Fix the question; `icalib predict --help` shows an example"


TEXT_OR_OBJECT = "a text, or an object with `text`"


def as_tuple(value: Any) -> Any:
    """Return the items of a list, an array or a generator; other values, texts and objects among them, as they are."""
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        return value
    return tuple(cast("Iterable[Any]", value))


def _turn(value: Any) -> Any:
    """Return an utterance with a speaker: which one is arbitrary, since encoders don't read it.

    Parquet has null for a field that an object lacks.
    """
    if isinstance(value, Utterance):
        return value
    fields = {"text": value} if isinstance(value, str) else value
    if not isinstance(fields, Mapping):
        raise ValueError(TEXT_OR_OBJECT)
    given = cast("Mapping[str, Any]", fields)
    return {"speaker": "user"} | {name: field for name, field in given.items() if field is not None}


def _as_given(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    validate(value)
    return value


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Id = Annotated[Text, BeforeValidator(_as_text)]
"""A name; data sets often have integers, which become texts, as `icalib prepare` has it."""
Verbatim = Annotated[Text, WrapValidator(_as_given)]
"""A text as it was given, by which answers are joined with other data; pools have it without white space around it."""


class GivenUtterance(TypedDict):
    """An utterance in a question; which speaker a ranker is told makes no difference."""

    text: str
    speaker: NotRequired[Literal["user", "agent"]]


_Turn = Annotated[Utterance, BeforeValidator(_turn, json_schema_input_type=str | GivenUtterance)]
Turns = Annotated[tuple[_Turn, ...], FailFast(), Field(min_length=1), BeforeValidator(as_tuple)]
"""Utterances, oldest first."""


class Question(BaseModel):
    """A context and its candidates; `id` is the number of its line or row where the file has none."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: Id
    context: Turns
    candidates: Annotated[tuple[Verbatim, ...], BeforeValidator(as_tuple)] = Field(min_length=2)

    def pool(self, pool_id: str, context_turns: int) -> Pool:
        """Return a pool of unknown label with the last `context_turns` utterances."""
        return unlabelled_pool(pool_id, self.context[-context_turns:], self.candidates)


class Pair(BaseModel):
    """A context and one candidate, of which there may be others."""

    context: Turns
    candidate: Text


class Candidates(BaseModel):
    """A context and its candidates, one or more."""

    context: Turns
    candidates: Annotated[tuple[Text, ...], BeforeValidator(as_tuple)] = Field(min_length=1)


def validated(model: type[M], values: Any, *, path: Path | str = "", line: int = 0) -> M:
    """Return a model of values from outside; DataError, with any file and line, where one is not valid."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        problem = first_problem(error)
        field = ".".join(problem.path)
        raise DataError(problem.found, f"Expected: {problem.expected}.", path=path, line=line, field=field) from None


def unlabelled_pool(pool_id: str, context: Sequence[Utterance], candidates: Sequence[str]) -> Pool:
    """Return a pool of unknown label, without validation, since `Pool` doesn't accept a single candidate."""
    texts = tuple(text.strip() for text in candidates)
    return Pool.model_construct(
        pool_id=pool_id, dialog_id=pool_id, split="test", context=tuple(context), candidates=texts, label=-1
    )


def read_questions(path: Path) -> list[Question]:
    """Return all questions of a file, in order; a DataError names the first line that is not valid, and its field."""
    if not path.is_file():
        raise DataError("no such file", "Check the path.", path=path)
    rows = read_lines(path) if kind_of(path) == "csv" else read_rows(path)  # columns of a CSV can't hold a context
    questions = list(accepted((replace(raw, cure=_CURE) for raw in rows), unique(_question, "id"), None))
    if not questions:
        raise DataError("the file has no questions", "Give one JSON object a line.", path=path)
    return questions


def _question(raw: Raw) -> Question:
    given = {name: value for name, value in unchecked_row(raw).items() if value is not None}  # Parquet's missing fields
    return build(Question, {"id": str(raw.number or raw.line)} | given, raw)
