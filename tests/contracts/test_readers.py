"""What every corpus reader must do.

A reader's samples are in samples/readers/NAME, those of a package outside of icalib in PACKAGE/samples/NAME.
`good` holds a file or folder of the format. `damaged` holds one with good records and records that are not valid; the
first line of the latter, and no other, contains the word "damaged".
"""

from __future__ import annotations

import gzip
import importlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.discovery import readers

from icalib.core.errors import DataError
from icalib.data.contexts import context_responses
from icalib.data.schema import AnsweredContext, Dialogue, Pool
from icalib.data.sources.readers import READERS, open_source
from icalib.data.sources.records import OnReject, Source


def sample_path(folder: Path) -> Path:
    """The sample in a folder: its only file, or the folder itself."""
    files = list(folder.iterdir())
    return files[0] if len(files) == 1 and files[0].is_file() else folder


Record = Dialogue | AnsweredContext | Pool


def records_of(source: Source, on_reject: OnReject | None = None) -> list[Record]:
    return [*source.dialogues(on_reject), *source.answers(on_reject), *source.pools(on_reject)]


@pytest.fixture(params=readers())
def reader(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def samples(reader: str) -> Path:
    module, _, name = reader.rpartition(":")
    if not module:
        return Path(__file__).parent / "samples" / "readers" / reader
    return Path(str(importlib.import_module(module.partition(".")[0]).__file__)).parent / "samples" / name


def test_a_sample_gives_records_with_responses_in_the_same_order_each_time(reader: str, samples: Path) -> None:
    source = open_source(sample_path(samples / "good"), reader)
    records = records_of(source)
    assert records
    assert source.reader == reader
    assert all(path.is_file() for path in source.files)
    assert records_of(source) == records
    ids = [record.pool_id if isinstance(record, Pool) else record.dialog_id for record in records]
    assert len(set(ids)) == len(ids)
    for record in records:
        if isinstance(record, Dialogue):
            assert list(context_responses(record, min_context=1, last_turn_only=source.last_turn_only))
        elif isinstance(record, Pool):
            assert record.label == 0
            assert record.candidates[0] not in record.candidates[1:]
        else:
            assert record.answers


def test_only_this_reader_detects_its_format(reader: str, samples: Path) -> None:
    path = sample_path(samples / "good")
    assert READERS.load(reader).detects(path)
    others = [name for name in READERS.names() if READERS.load(name) is not READERS.load(reader)]
    assert not [name for name in others if READERS.load(name).detects(path)]


def test_files_may_be_gzipped(reader: str, samples: Path, tmp_path: Path) -> None:
    def compress(file: Path) -> None:
        file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()

    plain = records_of(open_source(sample_path(samples / "good"), reader))
    assert records_of(open_source(_changed(samples, tmp_path, compress), reader)) == plain


@pytest.mark.parametrize("cut", [lambda data: gzip.compress(data)[:-9], lambda data: b"\n"], ids=["gzip", "empty"])
def test_a_damaged_file_is_a_data_error_with_its_name(
    reader: str, samples: Path, tmp_path: Path, cut: Callable[[bytes], bytes]
) -> None:
    path = _changed(samples, tmp_path, lambda file: file.write_bytes(cut(file.read_bytes())))
    with pytest.raises(DataError, match=r"damaged gzip data|empty|found no|found the header") as caught:
        records_of(open_source(path, reader))
    assert caught.value.path.startswith(str(path))


def test_a_damaged_record_is_an_error_with_file_and_line_and_the_rest_is_read(reader: str, samples: Path) -> None:
    source = open_source(sample_path(samples / "damaged"), reader)
    with pytest.raises(DataError):
        records_of(source)
    errors: list[DataError] = []
    records = records_of(source, lambda error, raw: errors.append(error))
    assert errors
    assert records
    for error in errors:
        assert Path(error.path) in source.files
        assert "damaged" in Path(error.path).read_text().splitlines()[error.line - 1]
        assert error.cure


def _changed(samples: Path, folder: Path, change: Callable[[Path], object]) -> Path:
    """A copy of the good sample with each of its files changed."""
    shutil.copytree(samples / "good", folder / "copy")
    for file in [path for path in (folder / "copy").rglob("*") if path.is_file()]:
        change(file)
    return sample_path(folder / "copy")
