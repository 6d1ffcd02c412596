"""The examples in docs/api.md run, from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "api.md"


def test_the_examples_run(tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a tiny backbone in place of the embedded one, which takes a minute, and a cross-encoder alone."""
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text().replace('backbone="minilm"', f'backbone="{tiny_bert}"')
    text = text.replace('"domain_pretraining": None', '"domain_pretraining": None, "similarity": None')
    text = text.replace("distil=True", "distil=True, limit=20")
    names: dict[str, object] = {}
    for block in re.finditer(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
        line = text.count("\n", 0, block.start(1))
        exec(compile("\n" * line + block[1], str(PAGE), "exec"), names)
    assert {"pools", "run", "compared", "swept", "ranker", "predicted"} <= names.keys()


def test_every_function_has_an_example() -> None:
    import icalib

    text = PAGE.read_text()  # what needs an endpoint is called within a sentence
    assert [name for name in icalib.__all__ if f"icalib.{name}(" not in text] == []
