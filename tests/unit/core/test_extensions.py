from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from icalib.core.errors import SettingError
from icalib.core.imports import Extensions

NUMBERS = Extensions(Decimal, "--number", "icalib.test_numbers", {"zero": "outside_numbers:zero"})


@pytest.fixture(autouse=True)
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module and an installed distribution that registers two of its objects."""
    module = 'from decimal import Decimal\nzero = Decimal(0)\nseven = Decimal(7)\ntext = "7"\n'
    (tmp_path / "outside_numbers.py").write_text(module)
    (tmp_path / "broken_numbers.py").write_text("import nothing_of_this_name\n")
    points = "[icalib.test_numbers]\nseven = outside_numbers:seven\nzero = outside_numbers:seven\n"
    (tmp_path / "numbers-1.0.dist-info").mkdir()
    (tmp_path / "numbers-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: numbers\nVersion: 1.0\n")
    (tmp_path / "numbers-1.0.dist-info" / "entry_points.txt").write_text(points)
    (tmp_path / "numbers-1.0.dist-info" / "top_level.txt").write_text("outside_numbers\n")
    (tmp_path / "other_numbers.py").write_text("from pathlib import Path\nPath(__file__).with_name('ran').touch()\n")
    (tmp_path / "others-1.0.dist-info").mkdir()
    (tmp_path / "others-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    (tmp_path / "others-1.0.dist-info" / "top_level.txt").write_text("other_numbers\n")
    monkeypatch.syspath_prepend(tmp_path)


def test_a_component_is_found_by_name_entry_point_or_import_path() -> None:
    assert list(NUMBERS.names()) == ["zero", "seven"]
    assert NUMBERS.load("zero") == 0  # an entry point cannot replace it
    assert NUMBERS.load("seven") == 7
    assert NUMBERS.load("outside_numbers:seven") == 7


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("outside_numbers:sevn", r"Did you mean `seven`\?"),
        ("outside_numbers:text", "instance of decimal.Decimal"),
        ("nowhere:seven", "No module named 'nowhere'.*PYTHONPATH"),
        ("antigravity:fly", "a part of Python"),
        ("other_numbers:seven", "doesn't require icalib"),
        ("broken_numbers:seven", "No module named 'nothing_of_this_name'"),
    ],
)
def test_a_wrong_name_says_what_was_found_and_what_to_do(name: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=words):
        NUMBERS.load(name)
    assert not (tmp_path / "ran").exists()
