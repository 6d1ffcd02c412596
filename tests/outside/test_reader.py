"""The recipe docs/extend/README.md, used from outside icalib."""

from __future__ import annotations

from pathlib import Path

import pytest

from icalib.core.errors import SettingError
from icalib.data.sources.readers import open_source

HERE = Path(__file__).parent
ZENDESK = "my_lab.readers:zendesk"


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
