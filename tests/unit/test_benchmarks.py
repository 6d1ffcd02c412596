"""Benchmarks run seldom, so a change of what they import is noticed here."""

from __future__ import annotations

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

BENCHMARKS = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_what_a_benchmark_imports_of_icalib_exists(path: Path) -> None:
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    imported = [(node.module, alias.name) for node in nodes for alias in node.names]
    assert not [(module, name) for module, name in imported if module and not _exists(module, name)]


def _exists(module: str, name: str) -> bool:
    if not module.startswith("icalib."):
        return True
    return hasattr(import_module(module), name) or find_spec(f"{module}.{name}") is not None
