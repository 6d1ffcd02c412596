"""docs/reliability.md names a test for each fault, and these exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))


def test_each_row_names_tests_that_exist() -> None:
    page = (ROOT / "docs/reliability.md").read_text().split("## The campaign")[0]
    rows = re.findall(r"^\| .* \|$", page, flags=re.MULTILINE)[2:]
    assert len(rows) > 8
    for row in rows:
        names = re.findall(r"`(test_\w+)`", row)
        assert names, row
        assert [name for name in names if f"def {name}(" not in TESTS] == []
