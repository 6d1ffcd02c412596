from __future__ import annotations

import os
from pathlib import Path

import pytest

from icalib.distributed.session import protect_token


@pytest.fixture
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where Ray expects the token, in a home folder without one."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    earlier = os.umask(0o022)
    yield tmp_path / ".ray" / "auth_token"
    os.umask(earlier)


def mode(path: Path) -> str:
    return f"{path.stat().st_mode & 0o777:04o}"


def test_the_token_is_created_for_this_user_only(token: Path) -> None:
    notes: list[str] = []
    protect_token(notes.append, create=True)
    assert (mode(token), mode(token.parent)) == ("0600", "0700")
    assert len(token.read_text()) == 64
    assert list(token.parent.iterdir()) == [token]
    before = token.read_text()
    protect_token(notes.append, create=True)
    assert token.read_text() == before
    assert notes == []


def test_wide_permissions_are_repaired_with_a_message(token: Path) -> None:
    token.parent.mkdir()
    token.write_text("a" * 64)
    notes: list[str] = []
    protect_token(notes.append, create=False)
    assert (mode(token), mode(token.parent), token.read_text()) == ("0600", "0700", "a" * 64)
    assert [note.partition(" was ")[0] for note in notes] == [str(token.parent), str(token)]


@pytest.mark.parametrize("variable", ["RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"])
def test_another_token_leaves_the_home_folder_alone(
    token: Path, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "disabled")
    protect_token(print, create=True)
    assert not token.parent.exists()
