from __future__ import annotations

import pytest

from icalib.core.yaml_text import parse_yaml


def test_dates_are_text_and_other_values_as_in_json() -> None:
    assert parse_yaml("{a: 2020-01-01, b: [1, 2.5, true, null], c: 'x'}") == {
        "a": "2020-01-01",
        "b": [1, 2.5, True, None],
        "c": "x",
    }
    assert parse_yaml("a: &x [1]\nb: *x") == {"a": [1], "b": [1]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{a: ", "ParserError"),
        ("[" * 3000, "nested deeper"),
        ("[" * 150 + "]" * 150, "nested deeper"),
        ("!!int ''", "IndexError"),
        ("!!bool x", "KeyError"),
        ("!!timestamp x", "AttributeError"),
        ("1" * 5000, "ValueError"),
        ("!!binary YQ==", "found b'a'"),
        ("1: 2", "the key 1 is not text"),
        ("&a [*a]", "inside the value"),
        ("a0: &a0 [1, 1]\n" + "\n".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40)), "aliases"),
    ],
)
def test_anything_else_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        parse_yaml(text)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400
