from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.damage import largest_file
from safetensors.numpy import save_file

from icalib.core import files
from icalib.core.errors import DataError, SettingError, StorageError
from icalib.core.files import (  # fmt: skip
    atomic_dir,
    atomic_write,
    is_temporary,
    remove_abandoned,
    remove_path,
    temporary_beside,
    write_json,
)
from icalib.core.seeding import child_seed


@pytest.mark.parametrize(
    ("error", "seen"), [(RuntimeError(), RuntimeError), (OSError(errno.ENOSPC, "No space left"), StorageError)]
)
def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, error: Exception, seen: type[Exception]
) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")

    def fail() -> None:
        with atomic_write(path) as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(seen):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_one_and_its_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/file").write_text("old")
    for name in ("file", "new"):
        (tmp_path / name).symlink_to(f"there/{name}")
        write_json(tmp_path / name, 1)
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / f"there/{name}").read_text() == "1\n"


@pytest.mark.parametrize("name", ["pipe", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_pipes_and_devices_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with pytest.raises(StorageError, match=f"can.t write '{name}': it is a pipe or a device"):
        write_json(name, 1)
    assert list(tmp_path.iterdir()) == [tmp_path / "pipe"]


@pytest.mark.parametrize("name", ["folder", "link", "."])
def test_a_file_is_not_written_where_a_folder_is(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("link").symlink_to("folder")
    begun = False
    with pytest.raises(StorageError, match=rf"can.t write '{name}': it is a folder. Name a file"), atomic_write(name):
        begun = True
    assert not begun
    assert list(Path("folder").iterdir()) == []


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    def write(*, fails: bool) -> None:
        with atomic_dir(tmp_path / "deep" / "folder") as temporary:
            (temporary / "a.txt").write_text("a")
            if fails:
                raise RuntimeError

    with pytest.raises(RuntimeError):
        write(fails=True)
    assert list((tmp_path / "deep").iterdir()) == []
    write(fails=False)
    assert (tmp_path / "deep" / "folder" / "a.txt").read_text() == "a"
    with pytest.raises(SettingError, match="not an empty folder"):
        write(fails=False)
    assert len(list((tmp_path / "deep").iterdir())) == 1


def test_weights_have_the_mode_of_other_files(tmp_path: Path) -> None:
    array = {"a": np.zeros(2)}
    with atomic_write(tmp_path / "model.safetensors") as temporary:
        save_file(array, temporary)
    with atomic_dir(tmp_path / "exported") as folder:
        save_file(array, folder / "model.safetensors")
    (tmp_path / "other").touch()
    modes = {path.stat().st_mode for path in tmp_path.rglob("*") if path.is_file()}
    assert modes == {(tmp_path / "other").stat().st_mode}


@pytest.mark.parametrize("library", ["python", "rust", "c++"])
def test_a_disk_that_refuses_in_the_middle_of_a_write_is_a_storage_error(tmp_path: Path, library: str) -> None:
    array = np.zeros(100_000)
    write: dict[str, Callable[[Path], object]] = {
        "python": lambda path: path.write_bytes(array.tobytes()),
        "rust": lambda path: save_file({"a": array}, path),
        "c++": lambda path: pq.write_table(pa.table({"a": np.random.default_rng(0).random(100_000)}), path),
    }

    def fill() -> None:
        with atomic_write(tmp_path / "file") as temporary, largest_file(1000):
            write[library](temporary)

    with pytest.raises(StorageError, match=r"can.t write .*file: File too large"):
        fill()
    assert not list(tmp_path.iterdir())


def test_child_seeds_are_fixed_distinct_and_fit_every_generator() -> None:
    assert child_seed(1, "teacher", 3) == 8001879767191041300  # a cache may outlive this version
    seeds = {child_seed(root, name, number) for root in range(5) for name in ("a", "ab") for number in range(50)}
    assert len(seeds) == 500
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert child_seed(1, "ab") != child_seed(1, "a", "b")


def test_a_data_error_says_where_and_travels() -> None:
    error = DataError("no text", "Fill it in.", path="corpus.jsonl", line=7, field="utterances.2.text")
    copy = pickle.loads(pickle.dumps(error))
    assert all(part in str(copy) for part in ("corpus.jsonl", "7", "utterances.2.text", "no text", "Fill it in."))
    assert (copy.path, copy.line, copy.field) == ("corpus.jsonl", 7, "utterances.2.text")


KILLED_WHILE_WRITING = """
import os, sys
from icalib.core.files import atomic_write
with atomic_write(sys.argv[1]) as unfinished:
    unfinished.write_text("half")
    os.kill(os.getpid(), 9)
"""


def test_what_a_killed_process_was_writing_is_removed_by_the_next_write(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED_WHILE_WRITING, str(tmp_path / "scores")], check=False)
    assert killed.returncode == -9
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".scores.")
    write_json(tmp_path / "other", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_what_others_are_writing_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = temporary_beside(tmp_path / "of this process")
    monkeypatch.setattr(files, "_process_space", lambda: "0" * 8)
    elsewhere = temporary_beside(tmp_path / "of another machine")
    monkeypatch.undo()
    monkeypatch.setattr(files, "_is_running", lambda process: process == os.getpid())
    elsewhere = elsewhere.with_name(elsewhere.name.replace(f"-{os.getpid()}-", "-1-"))
    for path in (running, elsewhere, tmp_path / ".x.tmp", tmp_path / ".nfs0001", tmp_path / "kept"):
        path.write_text("")
    remove_abandoned(tmp_path)
    assert len(list(tmp_path.iterdir())) == 5


def test_a_folder_that_is_removed_is_gone_before_its_files_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a process that is killed leaves a checkpoint that looks whole and lacks its weights."""
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "weights").touch()
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)
    remove_path(folder)
    assert not folder.exists()
    assert all(map(is_temporary, tmp_path.iterdir()))
