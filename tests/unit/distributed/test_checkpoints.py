"""Checkpoints that a worker which is alone keeps itself, and who can resume from whose; no Ray is started."""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path

import pytest

from icalib.core.errors import StorageError
from icalib.core.files import write_json
from icalib.core.stage_cache import RESUME
from icalib.distributed.checkpoints import (
    STATE,
    OwnCheckpoints,
    RayCheckpoints,
    has_ray_checkpoints,
    last_name,
    remove_unlisted,
)


def writer(text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "ds").mkdir()
        (folder / "ds" / "weights.pt").write_text(text)
        (folder / STATE).write_text(text)

    return write


def test_the_last_checkpoint_is_kept(tmp_path: Path) -> None:
    checkpoints = OwnCheckpoints(tmp_path)
    with checkpoints.last() as none:
        assert none is None
    for step in (9, 10, 10, 100):
        checkpoints.save(writer(f"{step}"), step)
        with checkpoints.last() as folder:
            assert folder is not None
            assert (folder / "ds" / "weights.pt").read_text() == f"{step}"
    assert [path.name for path in (tmp_path / RESUME).iterdir()] == ["checkpoint_000000100"]


def test_a_checkpoint_whose_worker_died_is_passed_over(tmp_path: Path) -> None:
    checkpoints = OwnCheckpoints(tmp_path)
    checkpoints.save(writer("whole"), 5)
    half = tmp_path / RESUME / "checkpoint_000000010"
    half.mkdir()
    (half / "ds").touch()
    with checkpoints.last() as folder:
        assert folder == tmp_path / RESUME / "checkpoint_000000005"
    checkpoints.save(writer("again"), 10)
    with checkpoints.last() as folder:
        assert folder == half


def test_a_checkpoint_of_ray_train_is_the_last_whoever_wrote_others(tmp_path: Path) -> None:
    OwnCheckpoints(tmp_path).save(writer("own"), 5)
    assert not has_ray_checkpoints(tmp_path)
    (tmp_path / RESUME / "checkpoint_manager_snapshot.json").touch()
    rays = tmp_path / RESUME / "checkpoint_2026-11-25_03-28-42.123456"
    rays.mkdir()
    assert last_name(tmp_path) == "checkpoint_000000005"  # half a checkpoint is none
    (rays / STATE).touch()
    assert has_ray_checkpoints(tmp_path)
    assert last_name(tmp_path).startswith("checkpoint_2026")


@pytest.mark.parametrize("damage", ["none", "empty", "half", "without checkpoints", "checkpoint gone"])
def test_checkpoints_that_ray_train_would_refuse_are_removed(damage: str, tmp_path: Path) -> None:
    listed, name = tmp_path / RESUME / "checkpoint_manager_snapshot.json", "checkpoint_2026-11-25_03-28-42.123456"
    write_json(listed, {"checkpoint_results": [{"checkpoint_dir_name": name}]})
    state = listed.with_name(name) / STATE
    state.parent.mkdir()
    state.touch()
    match damage:
        case "empty":
            listed.write_text("")
        case "half":
            listed.write_bytes(listed.read_bytes()[:30])
        case "without checkpoints":
            listed.write_text("{}")
        case "checkpoint gone":
            state.unlink()
        case _:
            pass
    remove_unlisted(tmp_path)
    assert listed.exists() == (damage == "none")
    assert has_ray_checkpoints(tmp_path) == (damage == "none")


def test_an_error_of_the_file_system_removes_no_checkpoint(tmp_path: Path) -> None:
    OwnCheckpoints(tmp_path).save(writer("own"), 5)
    (tmp_path / RESUME / "checkpoint_manager_snapshot.json").mkdir()
    with pytest.raises(OSError, match="directory"):
        remove_unlisted(tmp_path)
    assert last_name(tmp_path) == "checkpoint_000000005"


def test_checkpoints_of_a_worker_that_is_alone_need_no_list(tmp_path: Path) -> None:
    OwnCheckpoints(tmp_path).save(writer("own"), 5)
    remove_unlisted(tmp_path)
    assert last_name(tmp_path) == "checkpoint_000000005"


def test_a_worker_whose_folder_for_temporary_files_is_full_is_named(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        raise StorageError("can't write it: No space left on device.")

    with pytest.raises(StorageError, match=rf"on {platform.node()}: .*No space left on device\. TMPDIR"):
        RayCheckpoints(tmp_path).save(write, 1)
