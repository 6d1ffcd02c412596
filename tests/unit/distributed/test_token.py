from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from icalib.distributed.session import protect_token


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where Ray keeps the token, in a home folder without one."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    earlier = os.umask(0o022)
    yield tmp_path / ".ray"
    os.umask(earlier)


def test_the_folder_of_the_token_is_made_for_this_user_only(folder: Path) -> None:
    notes: list[str] = []
    protect_token(notes.append, create=False)
    assert not folder.exists()
    protect_token(notes.append, create=True)
    assert (folder.stat().st_mode & 0o777, notes) == (0o700, [])


def test_wide_permissions_are_repaired_with_a_message(folder: Path) -> None:
    folder.mkdir()
    notes: list[str] = []
    for _ in range(2):
        protect_token(notes.append, create=False)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert notes == [f"{folder} was accessible to other users (mode 0755); changed to 0700"]


@pytest.mark.parametrize("variable", ["RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"])
def test_another_token_leaves_the_home_folder_alone(
    folder: Path, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "disabled")
    protect_token(print, create=True)
    assert not folder.exists()
