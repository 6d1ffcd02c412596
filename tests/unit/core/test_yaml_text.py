from __future__ import annotations

import pytest

from icalib.core.yaml_text import parse_yaml


def test_dates_are_text_and_other_values_as_in_json() -> None:
    assert parse_yaml("{a: 2020-01-01, b: [1, 2.5, true, null], c: 'x'}") == {
        "a": "2020-01-01",
        "b": [1, 2.5, True, None],
        "c": "x",
    }


@pytest.mark.parametrize(
    ("text", "said"), [("1: 2", "the key 1 is not text"), ("{1: a, '1': b}", "the key 1"), ("on: 1", "True")]
)
def test_a_key_that_is_not_text_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_yaml(text)


@pytest.mark.parametrize("text", ["a: &a [x, x]\nb: [*a, *a]", "a: &a {x: 1}\nb: {<<: *a}"])
def test_an_alias_which_may_stand_for_any_number_of_values_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="found an alias"):
        parse_yaml(text)
