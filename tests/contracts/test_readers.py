"""Every corpus reader, those of installed packages too; its samples are in samples/readers/NAME."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.reader_contract import ReaderContract, sample_path

from icalib.data.sources.readers import READERS, detect


@pytest.fixture(params=READERS.names())
def reader(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def samples(reader: str) -> Path:
    return Path(__file__).parent / "samples" / "readers" / reader


class TestReaders(ReaderContract):
    def test_its_format_is_detected(self, reader: str, samples: Path) -> None:
        assert detect(sample_path(samples / "good")) == reader
