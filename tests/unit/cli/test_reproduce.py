"""`icalib reproduce`: rows that fail beside those that don't, what is finished, and what is refused.

Every table of the papers is made in tests/pipeline/test_reproduce.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from unit.reports.pages import read_page, visible

ROWS = [
    {"label": "BM25", "method": "bm25"},
    {"label": "GONE", "method": "gone"},
    {"label": "LOST", "method": "bert", "settings": {"encoder.backbone": "/nowhere"}},
]
Call = Callable[..., tuple[int, str]]


@pytest.fixture
def reproduce(tiny_pools: Path, tmp_path: Path, icalib: Any) -> Call:
    """Make a table of ROWS from the tiny pools; gives the exit code, and what was said."""

    def call(*options: object) -> tuple[int, str]:
        path = tmp_path / "mine.yaml"
        path.write_text(
            yaml.safe_dump({"title": "T", "source": "S", "kind": "metrics", "metrics": ["F1"], "rows": ROWS})
        )
        place = ("--runs", tmp_path / "runs", "--executor", "local", "--limit", "validation=8,test=8")
        code, out, err = icalib("reproduce", path, "--data", tiny_pools, *place, *options)
        return code, out + err

    return call


def test_rows_that_fail_are_shown_and_the_others_are_run_and_known_to_be_finished(
    reproduce: Call, tmp_path: Path
) -> None:
    code, said = reproduce("--labelled", "0.3,0.5", "--seeds", 1)
    assert code == 0
    (page,) = (tmp_path / "runs").rglob("mine-*.html")
    for text in (said, visible(read_page(page))):
        assert all(part in text for part in ("no method `gone`", "/nowhere"))
    finished = sorted(path.parent.name for path in (tmp_path / "runs").rglob("result.json"))
    assert [name.split("-")[0] for name in finished] == ["bm25", "bm25"]
    _, said = reproduce("--labelled", 0.3, "--seeds", 1, "--rows", "BM25,GONE", "--dry")
    assert "GONE (gone) can't run: no method `gone`" in said
    assert "test/scores" in said
