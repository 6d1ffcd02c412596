"""The examples in docs/extend/README.md are the files of the package here, which the other tests run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "extend" / "README.md").read_text()
EXAMPLES = dict(re.findall(r"```python\n# (my_lab/\S+\.py)\n(.*?)```", PAGE, re.DOTALL))
SECTIONS = {
    section.split("\n", 1)[0]: section
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)
    if "# my_lab/" in section
}


@pytest.mark.parametrize("file", EXAMPLES)
def test_an_example_is_the_file_that_is_tested(file: str) -> None:
    assert (HERE / file).read_text() == EXAMPLES[file]


def test_the_page_names_each_file_of_the_package() -> None:
    files = [path for path in (HERE / "my_lab").rglob("*.py") if path.name != "__init__.py"]
    assert set(re.findall(r"`(my_lab/[\w/]+\.py)`", PAGE)) == {path.relative_to(HERE).as_posix() for path in files}


@pytest.mark.parametrize("title", SECTIONS)
def test_a_recipe_has_one_example_and_is_in_the_table(title: str) -> None:
    assert SECTIONS[title].count("```python\n# my_lab/") == 1
    assert f"](#{title.lower().replace(' ', '-')}) |" in PAGE
