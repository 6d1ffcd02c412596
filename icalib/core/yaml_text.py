"""YAML as users write it: settings, configs, job files, tables."""

from __future__ import annotations

from typing import Any

import yaml

from icalib.core.text import short_repr, shortened

_MAX_DEPTH = 100
_MAX_VALUES = 1_000_000
_ERRORS = (yaml.YAMLError, ValueError, RecursionError, LookupError, AttributeError, TypeError, ArithmeticError)
"""What PyYAML raises; besides its own errors those of Python where a tag such as !!int has an invalid value."""


class _Loader(yaml.SafeLoader):
    """Reads dates as text, like every other value without a type of JSON."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def parse_yaml(text: str) -> Any:
    """Return a YAML document's value: text, numbers, booleans, null, lists and mappings with keys of text.

    Raises:
        ValueError: the text is not valid YAML, or has other values; the message says what was found, in one line.
    """
    try:
        value = yaml.load(text, Loader=_Loader)
    except RecursionError:
        raise ValueError(_too_deep()) from None
    except _ERRORS as error:
        raise ValueError(shortened(" ".join(f"{type(error).__name__}: {error}".split()), 300)) from error
    if _num_values(value, {}, 0) > _MAX_VALUES:
        raise ValueError(f"its aliases stand for more than {_MAX_VALUES:,} values")
    return value


def _num_values(value: Any, known: dict[int, int], depth: int) -> int:
    """Return how many values a value has with all aliases written out.

    Args:
        value: the value.
        known: the sizes of lists and mappings by identity; 0 for those that are being counted.
        depth: the number of lists and mappings around it.

    Raises:
        ValueError: a value of another type, too many levels, or an alias inside itself.
    """
    if value is None or isinstance(value, str | int | float):
        return 1
    if not isinstance(value, list | dict):
        raise ValueError(f"found {short_repr(value)}; expected text, numbers, true, false, null, lists and mappings")
    if depth > _MAX_DEPTH:
        raise ValueError(_too_deep())
    size = known.setdefault(id(value), -1)
    if size == 0:
        raise ValueError("found an alias inside the value that it stands for")
    if size < 0:
        known[id(value)] = 0
        if isinstance(value, dict):
            for key in value:
                if not isinstance(key, str):
                    raise ValueError(f"the key {short_repr(key)} is not text; write it in quotes")
        inner = value.values() if isinstance(value, dict) else value
        size = known[id(value)] = 1 + sum(_num_values(each, known, depth + 1) for each in inner)
    return size


def _too_deep() -> str:
    return f"nested deeper than {_MAX_DEPTH} levels"
