"""The examples in docs/api.md run, from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers.chat_endpoint import Response, endpoint

PAGE = Path(__file__).parents[2] / "docs" / "api.md"


def test_the_examples_run(tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a tiny backbone in place of the embedded one, which takes a minute, and a cross-encoder alone.

    A function plays the language model.
    """
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text().replace('backbone="minilm"', f'backbone="{tiny_bert}"')
    text = text.replace('"domain_pretraining": None', '"domain_pretraining": None, "similarity": None')
    text = text.replace("distil=True", "distil=True, limit=20")
    names: dict[str, object] = {}
    with endpoint(lambda body, number: Response("1")) as model:
        text = text.replace("http://127.0.0.1:8000/v1", model.url)
        for block in re.finditer(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, block.start(1))
            exec(compile("\n" * line + block[1], str(PAGE), "exec"), names)
    assert {"pools", "run", "compared", "swept", "ranker", "predicted"} <= names.keys()
    assert model.requests


def test_every_function_has_an_example() -> None:
    import icalib

    code = "".join(re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL))
    assert [name for name in icalib.__all__ if f"icalib.{name}(" not in code] == []
