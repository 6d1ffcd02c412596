"""No text or file of a user ends in a traceback: parsers return a value, or raise an error that says what to do.

The fault campaign (tests/faults) changes valid files of every kind; here are names and values of settings.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest
from helpers.hostile import YAML_TEXTS
from hypothesis import given, settings
from hypothesis import strategies as st

from icalib.api.settings import composed, parsed_settings
from icalib.cli.options import parsed_fractions, parsed_limit
from icalib.core.component import described, with_settings
from icalib.core.errors import IcalibError
from icalib.core.yaml_text import parse_yaml
from icalib.methods.catalogue import load_method
from icalib.sweeps.space import load_space
from icalib.tables.table import load_table

METHODS = ("icast", "pg-drr", "bm25", "bert-fp")
PATHS = sorted(
    {
        path
        for name in METHODS
        for path, _, _ in described(load_method(name))
        for path in (path, path.partition(".")[0], path.rpartition(".")[0] or path)
    }
)


@contextlib.contextmanager
def refused() -> Iterator[None]:
    """Let errors that a user can fix pass, if they are short enough to be read."""
    message = ""
    try:
        yield
    except IcalibError as error:
        message = str(error)
    assert len(message) < 8000


@given(st.sampled_from(METHODS), st.sampled_from(PATHS) | st.text(max_size=9), YAML_TEXTS)
@settings(max_examples=60)
def test_yaml_and_set(method: str, path: str, text: str) -> None:
    with contextlib.suppress(ValueError):
        json.dumps(parse_yaml(text))
    with refused():
        composed(method, None, parsed_settings([f"{path}={text}"]))


@pytest.mark.parametrize("method", METHODS)
def test_every_setting(method: str) -> None:
    loaded = load_method(method)
    for path in PATHS:
        for value in (None, True, -1, 10**400, float("nan"), "\ud800", [1, [2]], {"a": 1}, {"target": []}, "os.path"):
            with refused():
                with_settings(loaded, {path: value})


@given(st.sampled_from(["../x", ".", "a..b", "my_lab.nowhere", "os.path", "this\0", "x" * 5000, "a@b=[1"]) | st.text())
def test_names(name: str) -> None:
    for load in (composed, load_space, load_table):
        with refused():
            load(name)


@given(st.sampled_from(["1" * 5000, "9" * 19, "train=" + "1" * 5000, "²", "١", "-1", "train=1,train=2"]) | st.text())
def test_limits_and_fractions(text: str) -> None:
    for parse in (parsed_limit, parsed_fractions):
        with refused():
            parse(text)
