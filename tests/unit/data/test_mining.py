"""Which responses are mined together."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from helpers.pool_folders import read_pools
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from icalib.core.errors import DataError
from icalib.data.prepare import prepare
from icalib.data.schema import SPLITS, Split
from icalib.data.settings import PrepareSettings

SIZES: dict[Split, int] = {"train": 1500, "validation": 150, "test": 130}


def corpus(path: Path, response: Callable[[Split, int], str]) -> Path:
    """Dialogues with one response each."""
    lines: list[str] = []
    for split, size in SIZES.items():
        for number in range(size):
            utterances = [
                {"speaker": "user", "text": f"question {number}"},
                {"speaker": "user", "text": "please"},
                {"speaker": "agent", "text": response(split, number)},
            ]
            lines.append(json.dumps({"dialog_id": f"{split}{number}", "split": split, "utterances": utterances}))
    path.write_text("\n".join(lines) + "\n")
    return path


def likeness(folder: Path, split: Split) -> float:
    """Mean fraction of a wrong candidate's words that the right one has, too."""
    pools = read_pools(folder, split)
    shares: list[float] = []
    for pool in pools:
        assert pool.label is not None
        right = set(pool.candidates[pool.label].split())
        wrong = [set(text.split()) for number, text in enumerate(pool.candidates) if number != pool.label]
        shares += [len(right & words) / len(words) for words in wrong]
    return float(np.mean(shares))


@pytest.fixture
def texts() -> Callable[[Split, int], str]:
    rng = np.random.default_rng(3)

    def text(split: Split, number: int) -> str:
        topic = rng.integers(25)
        return " ".join(f"topic{topic}word{word}" for word in rng.choice(12, 6, replace=False))

    return text


def test_pools_of_all_splits_are_equally_hard(tmp_path: Path, texts: Callable[[Split, int], str]) -> None:
    source = corpus(tmp_path / "d.jsonl", texts)
    prepare(source, tmp_path / "pools", PrepareSettings(num_candidates=5))
    found = {split: likeness(tmp_path / "pools", split) for split in SPLITS}
    assert max(found.values()) / min(found.values()) < 1.05


def test_blocks_grow_until_they_have_enough_different_responses(tmp_path: Path) -> None:
    def response(split: Split, number: int) -> str:
        return f"answer {number // 60 if split == 'train' else number}"  # three in a block of 150

    source = corpus(tmp_path / "d.jsonl", response)
    prepare(source, tmp_path / "pools", PrepareSettings(num_candidates=5))
    pools = read_pools(tmp_path / "pools", "train")
    assert len(pools) == SIZES["train"]
    assert all(len(set(pool.candidates)) == 5 for pool in pools)
    with pytest.raises(DataError, match=r"the train split has \d+ dialogues: a response has 24 other responses"):
        prepare(source, tmp_path / "many", PrepareSettings(num_candidates=26))


def test_negatives_are_of_the_response_s_own_block(
    tmp_path: Path, texts: Callable[[Split, int], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks mined at once, or few by few: the same pools."""
    source = corpus(tmp_path / "d.jsonl", texts)
    prepare(source, tmp_path / "pools", PrepareSettings(num_candidates=5))
    monkeypatch.setattr("icalib.data.mining.MINING_BLOCK", 320)
    prepare(source, tmp_path / "parts", PrepareSettings(num_candidates=5))
    assert mined_together(tmp_path / "pools") == [125] * 12  # the smallest split has 130
    pools, others = ([pool.candidates for pool in read_pools(tmp_path / name, "train")] for name in ("pools", "parts"))
    assert pools == others


def test_blocks_stop_growing_with_the_corpus(
    tmp_path: Path, texts: Callable[[Split, int], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icalib.data.mining._EQUAL_BLOCK", 100)
    prepare(corpus(tmp_path / "d.jsonl", texts), tmp_path / "pools", PrepareSettings(num_candidates=5))
    assert mined_together(tmp_path / "pools") == [100] * 15


def mined_together(folder: Path) -> list[int]:
    """Return the numbers of training responses that are candidates of one another, directly or not."""
    pools = read_pools(folder, "train")
    row_of = {pool.candidates[pool.label or 0]: row for row, pool in enumerate(pools)}
    pairs = np.array([(row, row_of[text]) for row, pool in enumerate(pools) for text in pool.candidates])
    graph = coo_array((np.ones(len(pairs)), pairs.T), shape=(len(pools), len(pools)))
    return np.bincount(connected_components(graph, directed=False)[1]).tolist()
