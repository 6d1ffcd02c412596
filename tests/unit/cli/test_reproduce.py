"""`icalib reproduce`: rows that fail beside those that don't, what is finished, and what is refused.

Every table of the papers is made in tests/pipeline/test_reproduce.py.
"""

from __future__ import annotations

import re
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
    _, said = reproduce("--labelled", 0.3, "--seeds", 2, "--rows", "bm25", "--dry")
    assert f"finished  {finished[0]}" in said
    assert finished[0].replace("-s1", "-s2") in said


def test_dry_names_runs_that_are_in_the_way(reproduce: Call) -> None:
    asked = ("--labelled", 0.3, "--seeds", 1, "--rows", "bm25")
    reproduce(*asked)
    changed = (*asked, "--set", "scoring.pools_per_shard=7", "--dry")
    _, said = reproduce(*changed)
    assert "finished" not in said
    assert re.search(
        r"in the way +bm25-\S+: .*has a run with other settings \(settings.scoring.pools_per_shard\)", said
    )
    _, said = reproduce(*changed, "--fresh")
    assert re.search(r"to run +bm25", said)


def test_a_table_about_shift_asks_for_other_pools_and_others_take_none(
    reproduce: Call, tiny_pools: Path, icalib: Any
) -> None:
    code, _, said = icalib("reproduce", "gpf-table2", "--data", tiny_pools)
    assert code == 2
    assert "Name pools of them with --shift" in said
    code, said = reproduce("--labelled", 0.3, "--shift", tiny_pools)
    assert code == 2
    assert "is about metrics. Leave it out" in said
