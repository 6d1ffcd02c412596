"""What every negative sampler must do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.discovery import samplers

from icalib.data import negatives as mining
from icalib.data.negatives import mine_block, query_blocks, write_index
from icalib.data.splits import wording_key

NUM_ROWS = 50
NUM_NEGATIVES = 4


def mine(folder: Path, sampler: str, texts: list[str], dialogues: list[int], seed: int = 5) -> np.ndarray:
    write_index(folder, texts, np.asarray(dialogues), np.arange(len(texts)), sampler)
    blocks = query_blocks(folder, len(texts), sampler=sampler, num_negatives=NUM_NEGATIVES, seed=seed)
    return np.concatenate([mine_block(block) for block in blocks])


@pytest.fixture(params=samplers())
def sampler(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def texts() -> list[str]:
    """Responses of a few words; every fifth is a copy of the one before it, but for case, white space and signs."""
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{n}" for n in rng.integers(0, 30, 6)) for _ in range(NUM_ROWS)]
    return [
        f"“{texts[row - 1].upper().replace(' ', '  ')}!”" if row % 5 == 4 else text for row, text in enumerate(texts)
    ]


@pytest.fixture
def dialogues() -> list[int]:
    """Two responses a dialogue."""
    return [row // 2 for row in range(NUM_ROWS)]


def test_negatives_are_different_texts_of_other_dialogues(
    sampler: str, texts: list[str], dialogues: list[int], tmp_path: Path
) -> None:
    mined = mine(tmp_path, sampler, texts, dialogues)
    assert mined.shape == (NUM_ROWS, NUM_NEGATIVES)
    for query, rows in enumerate(mined):
        assert dialogues[query] not in {dialogues[row] for row in rows}
        assert len({wording_key(texts[row]) for row in (query, *rows)}) == NUM_NEGATIVES + 1


def test_the_seed_decides(sampler: str, texts: list[str], dialogues: list[int], tmp_path: Path) -> None:
    first = mine(tmp_path / "first", sampler, texts, dialogues)
    assert np.array_equal(first, mine(tmp_path / "again", sampler, texts, dialogues))


def test_blocks_do_not_change_the_result(
    sampler: str, texts: list[str], dialogues: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = mine(tmp_path / "whole", sampler, texts, dialogues)
    monkeypatch.setattr(mining, "QUERY_BLOCK", 7)
    monkeypatch.setattr("icalib.data.bm25.QUERY_ROWS", 3)
    assert np.array_equal(whole, mine(tmp_path / "parts", sampler, texts, dialogues))


def test_too_few_scores_are_filled_at_random(sampler: str, tmp_path: Path) -> None:
    texts = [f"only{row}" for row in range(NUM_NEGATIVES + 1)]
    mined = mine(tmp_path, sampler, texts, list(range(len(texts))))
    assert all(sorted([*rows, query]) == list(range(len(texts))) for query, rows in enumerate(mined))
