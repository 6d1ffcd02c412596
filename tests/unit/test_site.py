"""What `make docs` builds: every page is in its navigation, and links between pages hold on the site, too."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
CONFIG: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_hooks", DOCS / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pages(entry: Any) -> Iterator[str]:
    """The pages of a part of the navigation."""
    if isinstance(entry, str):
        yield entry
    else:
        for part in entry if isinstance(entry, list) else entry.values():
            yield from pages(part)


def test_the_navigation_has_every_page_once(hooks: ModuleType) -> None:
    own = [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]
    assert sorted(pages(CONFIG["nav"])) == sorted([*own, *hooks.site_paths().values()])


@pytest.mark.parametrize(
    ("path", "link", "on_site"),
    [
        ("index.md", "../README.md#use", "project/README.md#use"),
        ("extend/head.md", "../../ARCHITECTURE.md", "../project/ARCHITECTURE.md"),
        ("project/README.md", "examples/own_csv.ipynb", "../examples/own_csv.md"),
        ("examples/own_csv.md", "../docs/guarantees.md#top", "../guarantees.md#top"),
        ("index.md", "https://example.org/docs/x.md", "https://example.org/docs/x.md"),
    ],
)
def test_links_of_the_repository_become_links_of_the_site(
    hooks: ModuleType, path: str, link: str, on_site: str
) -> None:
    code = "`f[0](../README.md)`\n\n```python\nf[0](../README.md)\n```\n"  # which has no links
    assert hooks.with_site_links(f"See [it]({link}).\n{code}", path) == f"See [it]({on_site}).\n{code}"


def test_a_notebook_becomes_a_page_with_its_outputs(hooks: ModuleType) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "Text."]},
        {
            "cell_type": "code",
            "source": ["print(1)\n", "2"],
            "outputs": [
                {"output_type": "stream", "name": "stdout", "text": ["1\n"]},
                {"output_type": "execute_result", "data": {"text/plain": ["2"]}},
            ],
        },
        {"cell_type": "code", "source": ["x = 1"], "outputs": []},
    ]
    assert hooks.notebook_markdown({"cells": cells}) == (
        "# Title\nText.\n\n```python\nprint(1)\n2\n```\n\n```text\n1\n2\n```\n\n```python\nx = 1\n```\n"
    )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_notebooks_are_executed_from_top_to_bottom(path: Path) -> None:
    code = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"stream", "execute_result"}
    assert not any(line.startswith("/") for output in outputs for line in str(output).split())
