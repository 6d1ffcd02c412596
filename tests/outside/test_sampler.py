"""The recipe docs/extend/README.md, used from outside icalib."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from icalib.data.prepare import PrepareSettings, prepare
from icalib.data.simulate import simulate

NEAREST = "my_lab.samplers:nearest"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    simulate(tmp_path / "dialogues.jsonl", num_dialogues=60)
    return tmp_path / "dialogues.jsonl"


def test_it_mines_in_other_processes(source: Path, tmp_path: Path) -> None:
    def elsewhere(function: Callable[[Any], Any], blocks: Sequence[Any]) -> Iterator[Any]:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as processes:
            yield from processes.map(function, blocks)

    settings = PrepareSettings(negative_sampler=NEAREST, num_candidates=3)
    here = prepare(source, tmp_path / "here", settings)
    assert here.negative_sampler == NEAREST
    assert prepare(source, tmp_path / "elsewhere", settings, parallel_map=elsewhere).digest == here.digest
    others = prepare(source, tmp_path / "random", PrepareSettings(negative_sampler="random", num_candidates=3))
    assert others.digest != here.digest
