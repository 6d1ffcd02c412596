"""Values and texts that no one would write on purpose, for properties of parsers."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

KEYS = st.one_of(
    st.sampled_from(["target", "", ".", "a.b", "__class__", "model_config", "seed", "\x1b[31m", "\ud800", "x" * 300]),
    st.text(max_size=8),
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(
        ["mc-dropout", "os.path", "../x", "this.that", "icalib.heads.linear.LinearHead", "a" * 5000, "\0", 10**400, -1]
    ),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=8,
)
"""What JSON and YAML can hold."""

YAML_TEXTS = st.one_of(
    st.sampled_from(
        [
            "{a: ",
            "[1, 2]",
            "[" * 3000,
            "{a: " * 2000,
            "!!int ''",
            "!!bool x",
            "!!float x",
            "!!timestamp x",
            "!!binary '='",
            "!!set {a, b}",
            "!!python/object/apply:os.system [ls]",
            "&a [*a]",
            "&a {b: *a}",
            "*a",
            "2020-13-45",
            "2020-01-01",
            "1" * 5000,
            "? {a: 1}\n: 2",
            "1: 2",
            "=",
            "<<: 3",
            "\0",
            "\ud800",
            "---\n---\n",
            "%YAML 9.9",
            "a: &x [1]\nb: &y [*x, *x]\nc: [*y, *y]",
        ]
    ),
    st.text(alphabet=" \n:-[]{}&*!|>'\"%@`,?#=.~<0159aefoxntu_", max_size=30),
    st.text(max_size=30),
)


@st.composite
def mutated(draw: st.DrawFn, valid: Any) -> Any:
    """Draw a copy of a valid value with one to three of its parts replaced, added or left out."""
    value = copy.deepcopy(valid)
    for _ in range(draw(st.integers(1, 3))):
        whole = value
        while isinstance(whole, dict | list) and whole:
            key = draw(st.sampled_from(sorted(whole) if isinstance(whole, dict) else range(len(whole))))
            if isinstance(whole[key], dict | list) and whole[key] and draw(st.booleans()):
                whole = whole[key]
                continue
            action = draw(st.sampled_from(["replace", "remove", "add"]))
            if action == "remove":
                del whole[key]
            elif action == "replace":
                whole[key] = draw(VALUES)
            elif isinstance(whole, dict):
                whole[draw(KEYS)] = draw(VALUES)
            else:
                whole.append(draw(VALUES))
            break
    return value
