"""Who needs a token, and which files hold one."""

from __future__ import annotations

from pathlib import Path

import pytest

from icalib.core.errors import SettingError
from icalib.core.hosts import is_loopback, url_of
from icalib.serving.limits import read_token

TOKEN = "0123456789abcdef"


def test_all_but_loopback_addresses_need_a_token() -> None:
    for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost"):
        assert is_loopback(host)
        assert read_token(None, host, pytest.fail) is None
    for host in ("0.0.0.0", "::", "192.168.1.4", "example.org", "localhost.example.org"):
        with pytest.raises(SettingError, match="--token-file token, or leave --host out"):
            read_token(None, host, pytest.fail)


def test_an_ipv6_address_is_in_brackets_in_a_url() -> None:
    assert [url_of(host, 8000) for host in ("::1", "localhost")] == ["http://[::1]:8000", "http://localhost:8000"]


def test_a_token_is_read_and_open_permissions_are_reported(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    (tmp_path / "token").chmod(0o600)
    assert read_token(tmp_path / "token", "0.0.0.0", pytest.fail) == TOKEN
    (tmp_path / "token").chmod(0o644)
    notes: list[str] = []
    assert read_token(tmp_path / "token", "127.0.0.1", notes.append) == TOKEN
    assert "readable by other users (mode 0644)" in notes[0]


@pytest.mark.parametrize(
    "content", ["", "short", "two words of sixteen", "ü" * 20, "\udcff".encode("utf-8", "surrogateescape")]
)
def test_other_content_is_refused(content: str | bytes, tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(content if isinstance(content, bytes) else content.encode())
    for name, said in (("token", "secrets"), ("nothing", "can't be read")):
        with pytest.raises(SettingError, match=said):
            read_token(tmp_path / name, "127.0.0.1", pytest.fail)
