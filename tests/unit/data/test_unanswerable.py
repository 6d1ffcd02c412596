"""`prepare --unanswerable`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.pool_folders import read_pools
from helpers.raw_corpora import write_ranking

from icalib.core.errors import SettingError
from icalib.data.pools import read_pool_set
from icalib.data.prepare import PrepareSettings, prepare
from icalib.data.schema import NONE_RIGHT, SPLITS, Pool
from icalib.data.simulate import simulate


@pytest.fixture(scope="module")
def dialogues(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dialogues") / "dialogues.jsonl"
    simulate(path, num_dialogues=120, seed=3)
    return path


def prepared(source: Path, out: Path, **settings: Any) -> dict[str, Pool]:
    prepare(source, out, PrepareSettings(num_candidates=4, **settings))
    return {pool.pool_id: pool for pool in read_pools(out)}


@pytest.mark.parametrize("sampler", ["neighbourhood", "random"])
def test_the_fraction_of_each_split_loses_its_right_candidate_for_another_wrong_one(
    dialogues: Path, tmp_path: Path, sampler: str
) -> None:
    plain = prepared(dialogues, tmp_path / "plain", negative_sampler=sampler)
    pools = prepared(dialogues, tmp_path / "pools", negative_sampler=sampler, unanswerable=0.2)
    assert pools.keys() == plain.keys()
    pool_set = read_pool_set(tmp_path / "pools")
    for split in SPLITS:
        own = [pool for pool in pools.values() if pool.split == split]
        without = [pool for pool in own if pool.label == NONE_RIGHT]
        assert len(without) == round(0.2 * len(own)) == pool_set.num_unanswerable[split]
        for pool in own:
            before = plain[pool.pool_id]
            right = before.candidates[before.label]
            assert len(set(pool.candidates)) == len(before.candidates)
            assert (right in pool.candidates) == (pool.label >= 0)
            assert pool.label < 0 or pool.candidates[pool.label] == right
            assert (pool.label_order >= 0) == (split == "train")  # that none is right is known


def test_copies_across_splits_are_counted_by_the_reply_that_was_taken_out(dialogues: Path, tmp_path: Path) -> None:
    turns = [{"speaker": "user", "text": "Hello, it hums again."}, {"speaker": "agent", "text": "Which one is it?"}]
    copies = [{"dialog_id": f"{split}{n}", "split": split, "utterances": turns} for split in SPLITS for n in range(9)]
    path = tmp_path / "copied.jsonl"
    path.write_text(dialogues.read_text() + "".join(json.dumps(one) + "\n" for one in copies))
    found: list[str] = []
    for fraction in (0.0, 0.5):
        settings = PrepareSettings(num_candidates=4, unanswerable=fraction)
        prepare(path, tmp_path / f"{fraction}", settings, note=found.append)
    before, after = (text for text in found if "other splits" in text or "another split" in text)
    assert before == after


def test_the_draw_is_seeded_and_a_smaller_fraction_is_contained_in_a_larger_one(
    dialogues: Path, tmp_path: Path
) -> None:
    def without(name: str, **settings: Any) -> set[str]:
        pools = prepared(dialogues, tmp_path / name, **settings)
        return {pool_id for pool_id, pool in pools.items() if pool.label == NONE_RIGHT}

    few, many = without("few", unanswerable=0.1), without("many", unanswerable=0.3)
    assert few < many
    assert without("other seed", unanswerable=0.3, seed=8) != many


def test_ready_pools_keep_their_candidates(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="--unanswerable is for wrong candidates that are mined"):
        prepared(write_ranking(tmp_path / "queries.jsonl", lambda query: 1), tmp_path / "pools", unanswerable=0.3)
    with pytest.raises(SettingError, match="--negatives: for pools that are mined"):
        prepared(tmp_path / "queries.jsonl", tmp_path / "pools", negative_sampler="random")
    assert not (tmp_path / "pools").exists()
