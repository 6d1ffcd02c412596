"""What a killed process was writing is removed by the next one that writes there; all else is left alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from icalib.core import files
from icalib.core.files import is_unused, remove_abandoned, temporary_beside, write_json

KILLED_WHILE_WRITING = """
import os, sys
from icalib.core.files import atomic_write
with atomic_write(sys.argv[1]) as unfinished:
    unfinished.write_text("half")
    os.kill(os.getpid(), 9)
"""


def test_what_a_killed_process_was_writing_is_removed_by_the_next_write(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED_WHILE_WRITING, str(tmp_path / "scores")], check=False)
    assert killed.returncode == -9
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".scores.")
    write_json(tmp_path / "other", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_what_others_are_writing_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = temporary_beside(tmp_path / "of this process")
    monkeypatch.setattr(files, "_process_space", lambda: "0" * 8)
    elsewhere = temporary_beside(tmp_path / "of another machine")
    monkeypatch.undo()
    monkeypatch.setattr(files, "_is_running", lambda process: process == os.getpid())
    elsewhere = elsewhere.with_name(elsewhere.name.replace(f"-{os.getpid()}-", "-1-"))
    for path in (running, elsewhere, tmp_path / ".x.tmp", tmp_path / ".nfs0001", tmp_path / "kept"):
        path.write_text("")
    remove_abandoned(tmp_path)
    assert len(list(tmp_path.iterdir())) == 5


def test_a_folder_is_unused_if_nothing_is_there_but_what_was_being_written(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    assert is_unused(folder)
    folder.mkdir()
    assert is_unused(folder)
    temporary_beside(folder / "record.json").write_text("half")
    assert is_unused(folder)
    (folder / ".hidden").write_text("")
    assert not is_unused(folder)
    assert not is_unused(folder / ".hidden")
