"""Keywords of the API become values, or are refused."""

from __future__ import annotations

from typing import Any

import pytest

from icalib.api.options import Place, limits
from icalib.core.errors import SettingError


@pytest.mark.parametrize(
    ("limit", "said"), [(0, "expected numbers above 0"), ({"dev": 3}, "unknown split dev"), ({"test": 0}, "above 0")]
)
def test_wrong_limits_are_refused(limit: Any, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        limits(limit)


@pytest.mark.parametrize(
    ("keywords", "said"),
    [({"executor": "slurm"}, "Choose one of: ray, local"), ({"executor": "local", "address": "auto"}, "address auto")],
)
def test_wrong_places_are_refused(keywords: Any, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        Place.of(keywords)
