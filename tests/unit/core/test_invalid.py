from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from icalib.core.invalid import first_problem


class Record(BaseModel):
    model_config = ConfigDict(extra="forbid")

    texts: list[str] = Field(min_length=2)
    number: int = Field(default=1, ge=1)
    speaker: Literal["user", "agent"] = "user"


@pytest.mark.parametrize(
    ("value", "path", "found", "expected"),
    [
        ({"texts": []}, "texts", "found []", "at least 2 items"),
        ({"texts": "a"}, "texts", 'found "a"', "a list"),
        ({"texts": ["a", 1]}, "texts.1", "found 1", "a string"),
        ({"texts": ["a", "b"], "number": 0}, "number", "found 0", "greater than or equal to 1"),
        ({"texts": ["a", "b"], "number": "one"}, "number", 'found "one"', "a valid integer"),
        ({"texts": ["a", "b"], "speaker": "caller"}, "speaker", 'found "caller"', "'user' or 'agent'"),
        ({"texts": ["a", "b"], "text": "a"}, "text", 'found "a"', "no field of this name"),
        ({}, "texts", "it is missing", "a value"),
    ],
)
def test_the_first_problem_says_what_was_found_and_what_was_expected(
    value: dict[str, Any], path: str, found: str, expected: str
) -> None:
    with pytest.raises(ValidationError) as raised:
        Record.model_validate(value)
    problem = first_problem(raised.value)
    assert (".".join(problem.path), problem.found, problem.expected) == (path, found, expected)
