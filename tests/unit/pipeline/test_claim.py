"""Whose run a folder has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.runs import small_settings

from icalib.core.errors import RunFolderError, SettingError
from icalib.core.files import temporary_beside
from icalib.core.run_folder import RunFolder
from icalib.data.pools import read_pool_set
from icalib.pipeline.claim import claim, is_started
from icalib.pipeline.run import run_folder_of
from icalib.regimes.pseudo_labels import SYMBOLS


def test_a_folder_whose_config_was_being_written_is_new(tmp_path: Path) -> None:
    settings: Any = None  # of a run that would be compared with the folder's
    assert not is_started(RunFolder(tmp_path / "missing"), settings)
    temporary_beside(tmp_path / "config.yaml").write_text("version: 1\nmet")
    assert not is_started(RunFolder(tmp_path), settings)
    (tmp_path / "notes.txt").touch()
    with pytest.raises(RunFolderError, match="exists and is not a run folder"):
        is_started(RunFolder(tmp_path), settings)


def test_a_run_whose_provenance_is_damaged_is_still_its_own(tiny_pools: Path, tiny_bert: Path, tmp_path: Path) -> None:
    config, folder = small_settings("bert", tiny_pools, tiny_bert), RunFolder(tmp_path)
    assert not claim(folder, config)
    for text in ("{", "[]", "{}"):
        (tmp_path / "provenance.json").write_text(text)
        assert is_started(folder, config)


def test_a_finished_run_whose_component_was_edited_is_refused(
    tiny_pools: Path, tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that isn't finished continues: its stages have other digests, and are computed again."""
    editions = {"my_lab.losses.Soft": "before"}
    monkeypatch.setattr("icalib.pipeline.claim.from_outside", lambda _: dict(editions))
    config, folder = small_settings("bert", tiny_pools, tiny_bert), RunFolder(tmp_path)
    claim(folder, config)
    folder.write_json(
        "provenance.json", {"data_digest": read_pool_set(tiny_pools).digest, "from_outside": dict(editions)}
    )
    editions["my_lab.losses.Soft"] = "after"
    assert not claim(folder, config)
    folder.finish({})
    with pytest.raises(SettingError, match=r"file of my_lab\.losses\.Soft was edited since\. Use --fresh"):
        claim(folder, config)
    editions["my_lab.losses.Soft"] = "before"
    assert claim(folder, config)


def test_variants_have_folders_of_their_own_whose_names_fit(tiny_pools: Path, tiny_bert: Path, tmp_path: Path) -> None:
    config = small_settings("bert", tiny_pools, tiny_bert)
    thresholds = ",".join(f"regime.rule.{name}=0.{number}" for number, name in enumerate(SYMBOLS))
    methods = (
        *("bert@a=b/c", "bert@a=b-c", "bert@a=b"),
        *(f"icast@{thresholds},regime.num_rounds={number}" for number in (2, 3)),
        f"icast@encoder.backbone={'ж' * 200}",
    )
    folders = [run_folder_of(config.model_copy(update={"method": method}), tmp_path).path for method in methods]
    assert len(set(folders)) == len(methods)
    for folder in folders:
        folder.mkdir(parents=True)
        temporary_beside(folder).mkdir()
        assert folder.parent == tmp_path / config.experiment
        assert folder.name.endswith(f"-{tiny_pools.name}-0.3-s1")
    assert folders[1].name == f"bert@a=b-c-{tiny_pools.name}-0.3-s1"
