"""YAML as users write it: settings, configs, job files, tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from icalib.core.files import atomic_write
from icalib.core.text import short_repr, shortened

_ERRORS = (yaml.YAMLError, ValueError, RecursionError, LookupError, AttributeError, TypeError, ArithmeticError)
"""What PyYAML and json raise; besides their own errors those of Python, where a tag such as !!int has a wrong value."""


class _Loader(yaml.SafeLoader):
    """Reads dates as text, and refuses keys that aren't text, and aliases, a few of which can stand for any number of
    values."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise ValueError("found an alias (*name); write out the value that it stands for")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        mapping = super().construct_mapping(node, deep)
        for key in mapping:
            if not isinstance(key, str):  # json.dumps would make text of it, so that 1 and "1" were one key
                raise ValueError(f"the key {short_repr(key)} is not text; write it in quotes")
        return mapping


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def parse_yaml(text: str) -> Any:
    """Return a YAML document's value as JSON would have it, or raise a ValueError that says what is wrong."""
    try:
        return json.loads(json.dumps(yaml.load(text, Loader=_Loader)))
    except _ERRORS as error:
        raise ValueError(shortened(" ".join(f"{type(error).__name__}: {error}".split()), 300)) from error


def read_mapping(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file, or raise a ValueError that says in one line what was found instead."""
    try:
        value = parse_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(error.strerror) from error
    if not isinstance(value, dict):
        raise ValueError(f"found {short_repr(value)}; expected a mapping")
    return value


def write_mapping(path: Path, value: Mapping[str, Any]) -> None:
    """Write a mapping as YAML, atomically, with its keys in their order."""
    with atomic_write(path) as temporary:
        temporary.write_text(yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True), encoding="utf-8")
