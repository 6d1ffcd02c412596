"""Pools with several right candidates, from ready-made ranking data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.pool_folders import made_pool, read_pools
from helpers.raw_corpora import write_ranking
from pydantic import ValidationError

from icalib.data.pools import read_pool_set
from icalib.data.prepare import PrepareSettings, prepare
from icalib.data.schema import Pool


def ranking_file(path: Path, num_right: int = 3, num_wrong: int = 4) -> Path:
    """The odd queries have one right answer."""
    return write_ranking(path, lambda query: 1 if query % 2 else num_right, num_wrong=num_wrong)


def prepared(source: Path, out: Path, notes: list[str] | None = None, **settings: Any) -> list[Pool]:
    prepare(source, out, PrepareSettings(**settings), note=(notes if notes is not None else []).append)
    return read_pools(out)


def texts_of(pool: Pool) -> tuple[set[str], set[str]]:
    right = {pool.candidates[index] for index in pool.right}
    return right, {*pool.candidates} - right


def test_all_right_answers_of_a_query_are_right_in_its_pool(tmp_path: Path) -> None:
    notes: list[str] = []
    pools = prepared(ranking_file(tmp_path / "train.jsonl"), tmp_path / "pools", notes)
    assert len(pools) == 60
    for pool in pools:
        right, wrong = texts_of(pool)
        number = int(pool.context[0].text.split()[1])
        assert right == {f"right {number} {index}" for index in range(1 if number % 2 else 3)}
        assert wrong == {f"wrong {number} {index}" for index in range(4)}
        assert pool.candidates[pool.label] == f"right {number} 0"
        assert list(pool.also_right) == sorted(pool.also_right)
    orders = {pool.right for pool in pools if pool.also_right}
    assert len(orders) > 10  # candidates are shuffled
    found = read_pool_set(tmp_path / "pools")
    assert sum(found.num_several_right.values()) == 30
    train = [len(pool.right) for pool in pools if pool.split == "train"]
    assert found.mean_right["train"] == np.mean(train)
    assert any(note.startswith("pools with several right candidates: ") for note in notes)


def test_long_lists_keep_half_of_the_pool_for_wrong_candidates(tmp_path: Path) -> None:
    notes: list[str] = []
    source = ranking_file(tmp_path / "train.jsonl", num_right=9, num_wrong=20)
    pools = prepared(source, tmp_path / "pools", notes, num_candidates=6)
    assert {(len(pool.right), len(pool.candidates)) for pool in pools} == {(3, 6), (1, 6)}
    for pool in pools:
        right, wrong = texts_of(pool)
        assert {text.split()[0] for text in right} == {"right"}
        assert {text.split()[0] for text in wrong} == {"wrong"}
        assert {int(text.split()[2]) for text in right} == {*range(len(right))}  # the first ones
        assert {int(text.split()[2]) for text in wrong} == {*range(len(wrong))}
    assert "left out: 180 right candidates of pools with more than 6" in notes
    few_wrong = ranking_file(tmp_path / "few.jsonl", num_right=9, num_wrong=2)
    pools = prepared(few_wrong, tmp_path / "few", num_candidates=6)
    assert {len(pool.right) for pool in pools} == {4, 1}


@pytest.mark.parametrize(
    ("label", "also_right"), [(-1, (0,)), (-2, (0,)), (0, (0,)), (0, (1, 1)), (0, (3,)), (0, (-1,))]
)
def test_labels_that_contradict_each_other_are_refused(label: int, also_right: tuple[int, ...]) -> None:
    with pytest.raises(ValidationError):
        made_pool(["1", "2", "3"], label=label, also_right=also_right)
