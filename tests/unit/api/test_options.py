"""Keywords of the API become values, or are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from icalib.api.options import Place, RunTemplate, limits
from icalib.core.errors import SettingError


def test_a_number_limits_every_split() -> None:
    assert limits(5) == {"train": 5, "validation": 5, "test": 5}
    assert limits({"test": 2}) == {"test": 2}
    assert limits(None) == {}


@pytest.mark.parametrize(
    ("limit", "said"), [(0, "expected numbers above 0"), ({"dev": 3}, "unknown split dev"), ({"test": 0}, "above 0")]
)
def test_wrong_limits_are_refused(limit: Any, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        limits(limit)


def test_places_are_paths_or_uris() -> None:
    assert Place.of({"runs": "there"}).runs == Path("there")
    assert Place.of({}).executor == "ray"


@pytest.mark.parametrize(
    ("keywords", "said"),
    [({"executor": "slurm"}, "Choose one of: ray, local"), ({"executor": "local", "address": "auto"}, "address auto")],
)
def test_wrong_places_are_refused(keywords: Any, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        Place.of(keywords)


def test_data_is_required() -> None:
    with pytest.raises(SettingError, match="`data` is missing"):
        RunTemplate.of(None, None, {})
