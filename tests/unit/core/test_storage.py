from __future__ import annotations

import itertools
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from helpers.stores import Machines
from hypothesis import given
from hypothesis import strategies as st
from pyarrow.fs import FileInfo, FileType

from icalib.core import storage
from icalib.core.errors import SettingError, StorageError
from icalib.core.files import temporary_beside
from icalib.core.storage import is_mirrored, local_path, location, pull, push, remove

NAMES = st.text(st.characters(exclude_characters="/?\0", exclude_categories=["Cs"]), min_size=1).filter(
    lambda name: name not in (".", "..")
)


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_json", ".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def content(folder: Path) -> dict[str, str]:
    return {p.relative_to(folder).as_posix(): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


@given(
    scheme=st.sampled_from(["s3", "gs", "abfs", "fsspec+memory"]),
    authority=st.sampled_from(["", "bucket", "my-bucket.v2", "container@account"]),
    names=st.lists(NAMES, min_size=1, max_size=4),
)
def test_a_uri_has_one_local_path_that_stands_for_it(scheme: str, authority: str, names: list[str]) -> None:
    uri = "/".join([f"{scheme}://{authority}", *names])
    path = local_path(uri)
    assert is_mirrored(path)
    assert location(path) == uri
    assert local_path(f"{uri}/") == path
    assert path.name == names[-1]


@pytest.mark.parametrize(
    "uri", ["s3://", "s3://bucket/../x", "s3://bucket//x", "s3://bucket/./x", "S 3://bucket/x", "foo://bucket/x"]
)
def test_an_invalid_location_is_refused(uri: str) -> None:
    with pytest.raises(SettingError, match="s3://"):
        pull(local_path(uri))


@pytest.mark.parametrize(
    "uri",
    [
        "s3://key:secret@bucket/x", "s3://bucket/x?endpoint_override=secret", "s3://key:se/secret@bucket/x",
        "s3://key:secret@bucket/../x", "s3://key:se?secret@bucket", "s3://key:secret", "s3://key:secret@",
    ],
)  # fmt: skip
def test_secrets_in_a_uri_are_refused_and_not_repeated(uri: str) -> None:
    with pytest.raises(SettingError) as caught:
        local_path(uri)
    assert "secret" not in str(caught.value)
    assert "key" not in str(caught.value).partition(" ")[0]


def test_a_store_cannot_write_outside_of_its_mirror(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    push(write(machines.on("a", "run"), table="1"))
    real = storage.ObjectStore.of(machines.on("b", "run"))
    assert real is not None

    class Hostile:
        def __getattr__(self, name: str) -> Any:
            return getattr(real.filesystem, name)

        def get_file_info(self, selector: Any) -> Any:
            found = real.filesystem.get_file_info(selector)
            return (
                [FileInfo(f"{selector.base_dir}/../../../out", type=FileType.File, size=1), *found]
                if isinstance(found, list)
                else found
            )

    monkeypatch.setattr(storage, "filesystem_of", lambda uri: (Hostile(), real.base))
    with pytest.raises(StorageError, match=r"\.\./out'.*outside"):
        pull(machines.on("b", "run"))
    assert not list(machines.folder.rglob("out"))


def test_a_folder_travels_to_another_machine_and_back(machines: Machines) -> None:
    here = write(machines.on("a", "run"), table="1", deep__table="2", result_json="{}")
    push(here)
    elsewhere = machines.on("b", "run")
    assert len(pull(elsewhere)) == 3
    assert content(elsewhere) == {"table": "1", "deep/table": "2", "result.json": "{}"}
    assert pull(elsewhere) == []
    write(elsewhere, deep__table="20")
    push(elsewhere)
    here = machines.on("a", "run")
    wait_a_second(here / "deep" / "table")
    assert pull(here) == [here / "deep" / "table"]
    assert content(here)["deep/table"] == "20"


def wait_a_second(path: Path) -> None:
    """As if the file had been synchronised a second ago: stores count whole seconds."""
    earlier = path.stat().st_mtime_ns - 10**9
    os.utime(path, ns=(earlier, earlier))


@pytest.mark.parametrize("first", ["config.yaml", "sweep.yaml"])
@pytest.mark.parametrize("pulled", [".", "{first}"])
def test_of_a_folder_that_another_machine_began_anew_nothing_stays(machines: Machines, first: str, pulled: str) -> None:
    """Else an older result counts as the new run's, and is uploaded as such."""
    here = write(machines.on("a", "run"), round_3="old", result_json="old")
    (here / first).write_text("1")
    push(here)
    wait_a_second(here / first)
    elsewhere = machines.on("b", "run")
    remove(elsewhere)
    elsewhere.mkdir(parents=True)
    (elsewhere / first).write_text("2")
    push(elsewhere)
    here = machines.on("a", "run")
    pull(here / pulled.format(first=first))
    assert content(here) == {first: "2"}


def test_what_was_not_uploaded_stays_beside_an_unchanged_beginning(machines: Machines) -> None:
    here = machines.on("a", "run")
    here.mkdir(parents=True)
    (here / "config.yaml").write_text("1")
    push(here)
    write(here, result_json="its upload broke off")
    pull(here)
    assert content(here) == {"config.yaml": "1", "result.json": "its upload broke off"}


def test_locks_and_what_a_killed_process_left_stay_here(machines: Machines) -> None:
    here = machines.on("a", "run")
    for name in (".table.77.tmp", ".locks/use", "table"):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text("")
    push(here)
    assert content(machines.there("run")) == {"table": ""}


def test_what_a_killed_upload_left_there_is_not_read(machines: Machines) -> None:
    push(write(machines.on("a", "run"), table="1"))
    temporary_beside(machines.there("run") / "table").write_text("half of it")
    elsewhere = machines.on("b", "run")
    pull(elsewhere)
    assert content(elsewhere) == {"table": "1"}


def test_a_folder_is_whole_there_only_when_all_of_it_is(machines: Machines) -> None:
    push(write(machines.on("a", "pools"), train="old", pools_json="old"))
    here = write(machines.on("a", "pools"), train="newer", pools_json="newer")
    machines.fails(lambda kind, path: kind == "write" and "train" in path)
    with pytest.raises(StorageError):
        push(here)
    assert content(machines.there("pools")) == {"train": "old"}


@pytest.mark.parametrize("kind", ["look", "write"])
def test_a_store_that_fails_for_a_while_is_tried_again(machines: Machines, kind: str) -> None:
    here = write(machines.on("a", "run"), table="1")
    tried = machines.fails(lambda what, _: what == kind and [each for each, _ in tried].count(kind) <= 3)
    push(here)
    assert content(machines.there("run")) == {"table": "1"}
    assert [each for each, _ in tried].count(kind) > 3


def test_a_store_that_keeps_failing_is_an_error_with_cause_and_fix(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    now = time.monotonic()
    monkeypatch.setattr(time, "sleep", pauses.append)
    monkeypatch.setattr(time, "monotonic", lambda: now + sum(pauses))
    here = write(machines.on("a", "run"), table="1")
    tried = machines.fails(lambda kind, _: kind == "look")
    with pytest.raises(StorageError) as caught:
        push(here)
    assert all(part in str(caught.value) for part in (machines.uri, "NETWORK_CONNECTION", storage.PATIENCE))
    assert 5 <= len(tried) <= 10
    assert 10 < sum(pauses) <= 30
    assert all(later < 4 * pause for pause, later in itertools.pairwise(pauses))
    monkeypatch.setenv(storage.PATIENCE, "0")
    tried.clear()
    with pytest.raises(StorageError):
        push(here)
    assert len(tried) == 1


@pytest.mark.parametrize("error", [PermissionError("no"), OSError("AWS Error ACCESS_DENIED during HeadObject")])
def test_an_error_that_a_retry_cannot_fix_is_not_tried_again(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    calls: list[int] = []

    def refuse(*_: object) -> None:
        calls.append(1)
        raise error

    monkeypatch.setattr("helpers.stores.FailingStore.get_file_info", refuse)
    machines.fails(lambda kind, _: False)
    with pytest.raises(StorageError):
        pull(machines.on("a", "run"))
    assert len(calls) == 1


def test_of_several_processes_that_want_the_same_folder_one_downloads_it(machines: Machines) -> None:
    push(write(machines.on("a", "model"), **{f"part{number}": "x" * 1000 for number in range(5)}))
    elsewhere = machines.on("b", "model")
    tried = machines.fails(lambda kind, _: False)
    threads = [threading.Thread(target=pull, args=[elsewhere]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(content(elsewhere)) == 5
    assert [kind for kind, _ in tried].count("read") == 5
