"""The recipe docs/extend/README.md, used from outside icalib."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from icalib.core.errors import SettingError
from icalib.data.sources.readers import open_source

HERE = Path(__file__).parent
ZENDESK = "my_lab.readers:zendesk"
EXPORT = HERE / "my_lab" / "samples" / "zendesk" / "good" / "export.txt"


def test_the_short_reader_of_the_page_reads_what_that_of_the_package_does() -> None:
    page = (HERE.parents[1] / "docs" / "extend" / "README.md").read_text()
    (code,) = (code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "records_in" in code)
    names: dict[str, Any] = {}
    exec(code, names)

    def turns(source: Any) -> list[Any]:
        return [[(one.speaker, one.text) for one in dialogue.utterances] for dialogue in source.dialogues(None)]

    assert names["zendesk"].detects(EXPORT)
    assert turns(names["zendesk"].open(EXPORT)) == turns(open_source(EXPORT, ZENDESK))


def test_the_reader_of_an_installed_package_is_found_and_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingError, match="format is unknown"):
        open_source(EXPORT)
    (tmp_path / "my_lab-1.0.dist-info").mkdir()
    (tmp_path / "my_lab-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: my_lab\nVersion: 1.0\n")
    points = f"[icalib.readers]\nzendesk = {ZENDESK}\n"
    (tmp_path / "my_lab-1.0.dist-info" / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(tmp_path)
    assert open_source(EXPORT).reader == open_source(EXPORT, "zendesk").reader == "zendesk"


@pytest.mark.parametrize(
    ("returns", "words"),
    [
        ("None", "returned None, expected a Source"),
        ("Source(files=(path,), dialogues=iter([]))", "whose dialogues, pools and answers are functions"),
        ("1 / 0", r"failed: ZeroDivisionError: .*line 1\). Correct it"),
    ],
)
def test_a_reader_with_a_mistake_is_named(
    returns: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"wrong_reader_{len(returns)}"
    (tmp_path / f"{module}.py").write_text(
        f"from icalib.data.sources import *; mine = Reader(lambda path: {returns}, detects=lambda path: True)"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SettingError, match=f"the reader `{module}:mine` .*{words}"):
        open_source(EXPORT, f"{module}:mine")
