"""The examples in docs/extend are the files of the package here, which the other tests run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs" / "extend"
OURS = sorted(page.stem for page in DOCS.glob("*.md") if page.stem != "README")
EXAMPLES = [
    pytest.param(found[1], found[2], id=f"{page.stem}: {found[1]}")
    for page in sorted(DOCS.glob("*.md"))
    for found in re.finditer(r"```python\n# (my_lab/\S+\.py)\n(.*?)```", page.read_text(), re.DOTALL)
]


@pytest.mark.parametrize(("file", "text"), EXAMPLES)
def test_an_example_is_the_file_that_is_tested(file: str, text: str) -> None:
    assert (Path(__file__).parent / file).read_text() == text


@pytest.mark.parametrize("name", OURS)
def test_a_recipe_has_a_whole_example_names_its_suite_and_is_in_the_index(name: str) -> None:
    page = (DOCS / f"{name}.md").read_text()
    assert "```python\n# my_lab/" in page
    assert re.search(r"tests/contracts/test_\w+\.py", page)
    assert "(README.md)" in page
    assert f"({name}.md)" in (DOCS / "README.md").read_text()


def test_the_index_names_every_kind() -> None:
    index = (DOCS / "README.md").read_text()
    linked = set(re.findall(r"\(([\w-]+)\.md\)", index))
    assert linked == set(OURS)
