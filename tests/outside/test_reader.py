"""The recipe docs/extend/corpus-reader.md, used from outside icalib."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from icalib.core.errors import SettingError
from icalib.data.pools import as_pools, iter_pools
from icalib.data.prepare import PrepareSettings, prepare
from icalib.data.sources.readers import open_source

HERE = Path(__file__).parent
ZENDESK = "my_lab.readers:zendesk"


def export(path: Path, num_tickets: int) -> Path:
    """Tickets of four comments each."""
    with path.open("w") as file:
        for number in range(num_tickets):
            comments = [
                {"from": ("requester", "agent")[turn % 2], "body": f"ticket {number} says {turn}"} for turn in range(4)
            ]
            file.write(json.dumps({"ticket": number, "group": "printers", "comments": comments}) + "\n")
    return path


def test_an_export_is_prepared(tmp_path: Path) -> None:
    source = export(tmp_path / "export.txt", 120)
    pool_set = prepare(source, tmp_path / "pools", PrepareSettings(format=ZENDESK, num_candidates=3))
    assert pool_set.reader == ZENDESK
    assert sum(pool_set.num_pools.values()) == 120
    pool = next(as_pools(next(iter_pools(tmp_path / "pools", "train"))))
    number = pool.dialog_id
    assert pool.candidates[pool.label] == f"ticket {number} says 3"
    assert [(u.speaker, u.text) for u in pool.context] == [
        ("user", f"ticket {number} says 0"),
        ("agent", f"ticket {number} says 1"),
        ("user", f"ticket {number} says 2"),
    ]


def test_the_reader_of_an_installed_package_is_found_and_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = HERE / "my_lab" / "samples" / "zendesk" / "good" / "export.txt"
    with pytest.raises(SettingError, match="format is unknown"):
        open_source(path)
    (tmp_path / "my_lab-1.0.dist-info").mkdir()
    (tmp_path / "my_lab-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: my_lab\nVersion: 1.0\n")
    points = f"[icalib.readers]\nzendesk = {ZENDESK}\n"
    (tmp_path / "my_lab-1.0.dist-info" / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(tmp_path)
    assert open_source(path).reader == open_source(path, "zendesk").reader == "zendesk"
