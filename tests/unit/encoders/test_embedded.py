"""The embedded backbone is that of sentence-transformers/all-MiniLM-L6-v2, or it is refused before it is read."""

from __future__ import annotations

import shutil
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from helpers.damage import DAMAGES

from icalib.core.errors import DamagedFileError, SettingError
from icalib.encoders import backbone as embedded
from icalib.encoders.backbone import EMBEDDED, backbone_digest, load_tokenizer


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package's folder, found in its place."""
    real = embedded.embedded_path()
    shutil.copytree(real, tmp_path / "model")
    spec = ModuleSpec("package", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(embedded, "find_spec", lambda name: spec)
    return tmp_path / "model"


@pytest.mark.parametrize(
    ("file", "damage"), [("model.safetensors", "flip_a_bit"), ("vocab.txt", "truncate"), ("config.json", "delete")]
)
def test_another_file_than_the_tested_one_is_refused_before_it_is_read(installed: Path, file: str, damage: str) -> None:
    DAMAGES[damage](installed / file)
    with pytest.raises(DamagedFileError, match=f"{file} (is missing|has SHA-256 .*instead of).*force-reinstall"):
        backbone_digest(EMBEDDED)
    load_tokenizer.cache_clear()
    with pytest.raises(DamagedFileError, match=file):
        load_tokenizer(EMBEDDED)


def test_without_the_package_another_backbone_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "find_spec", lambda name: None)
    with pytest.raises(SettingError, match="not installed"):
        embedded.embedded_path()
