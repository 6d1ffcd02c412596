"""Whose run a folder has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from icalib.core.errors import RunFolderError
from icalib.core.files import temporary_beside
from icalib.core.run_folder import RunFolder
from icalib.pipeline.claim import is_started


def test_a_folder_whose_config_was_being_written_is_new(tmp_path: Path) -> None:
    settings: Any = None  # of a run that would be compared with the folder's
    assert not is_started(RunFolder(tmp_path / "missing"), settings)
    temporary_beside(tmp_path / "config.yaml").write_text("version: 1\nmet")
    assert not is_started(RunFolder(tmp_path), settings)
    (tmp_path / "notes.txt").touch()
    with pytest.raises(RunFolderError, match="exists and is not a run folder"):
        is_started(RunFolder(tmp_path), settings)
