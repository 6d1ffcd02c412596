"""The recipe docs/extend/README.md, used from outside icalib."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from icalib.core.errors import SettingError
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


@pytest.mark.parametrize(
    ("yields", "words"),
    [
        ("([0], [float('nan')])", "expected a number, not NaN"),
        ("([10**6], [1.0])", "rows from 0 to "),
        ("([0, 1], [1.0])", "expected a number"),
        ("1 / 0", r"failed: ZeroDivisionError: division by zero \(.*, line 7\). Correct it"),
    ],
)
def test_a_sampler_with_a_mistake_is_named(
    yields: str, words: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"wrong_sampler_{abs(hash(yields))}"
    (tmp_path / f"{module}.py").write_text(
        "from icalib.data.negatives import NegativeSampler\n\n\n"
        f"def scores(index, queries):\n    for _ in queries:\n\n        yield {yields}\n\n\n"
        "mine = NegativeSampler(lambda index, responses: None, scores)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = PrepareSettings(negative_sampler=f"{module}:mine", num_candidates=3)
    with pytest.raises(SettingError, match=f"the negative sampler `{module}:mine` .*{words}"):
        prepare(source, tmp_path / "pools", settings)
    assert not (tmp_path / "pools").exists()


def test_a_sampler_that_skips_a_query_is_refused(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "short_sampler.py").write_text(
        "from icalib.data.negatives import NegativeSampler\n"
        "mine = NegativeSampler(lambda index, responses: None, lambda index, queries: iter([([0], [1.0])]))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SettingError, match=r"yielded 1 times for \d+ queries"):
        prepare(source, tmp_path / "pools", PrepareSettings(negative_sampler="short_sampler:mine", num_candidates=3))
