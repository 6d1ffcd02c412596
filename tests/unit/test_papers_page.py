"""docs/papers.md: its tables of deviations are those of the presets."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def page() -> ModuleType:
    spec = importlib.util.spec_from_file_location("presets_page", ROOT / "docs" / "presets.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date_and_has_every_preset(page: ModuleType) -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.page_with_presets(text) == text, "run `make results`"
    assert [name for name in page.preset_names() if f"<!-- preset {name} -->" not in text] == []
