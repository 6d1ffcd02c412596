from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from icalib.distributed.doctor import rehearsal


def test_any_exception_of_a_rehearsal_becomes_a_failed_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*_: Any) -> None:
        raise ZeroDivisionError("a driver that\nno one expected")

    monkeypatch.setattr(rehearsal, "map_shards", break_down)
    job: Any = SimpleNamespace()
    check = rehearsal.check_scoring(job, tmp_path, job)
    assert (check.status, check.found) == ("fail", "ZeroDivisionError: a driver that no one expected")
