from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from icalib.core.errors import SettingError
from icalib.data.pools import read_pool_set
from icalib.labelling.choose import Unlabelled, choose, k_center, labelled_rows


def line(*positions: float) -> np.ndarray:
    return np.array([[position, 0.0] for position in positions], np.float32)


def test_k_center_takes_the_farthest_from_all_before() -> None:
    points = line(0, 1, 2, 9, 10)
    found = k_center(points, 3, line(0), np.arange(5))
    assert found.tolist() == [4, 2, 1]  # 10 from 0; then 2 from 0; then 1 and 9, both at 1, the first of them


def test_k_center_takes_one_of_a_dialogue_while_there_are_others() -> None:
    found = k_center(line(0, 8, 9, 10), 3, line(0), np.array([0, 1, 1, 1]), taken=np.array([0]))
    assert found.tolist() == [3, 1, 2]
    assert k_center(line(0, 8, 9, 10), 2, line(0), np.array([0, 1, 1, 1])).tolist() == [3, 0]


def test_random_pools_are_of_long_dialogues_as_often_as_all_are(tiny_pools: Path) -> None:
    dialogs = np.repeat(np.arange(24), [1, 11] * 12)  # 12 of 144 pools are of a dialogue with one pool
    names = [str(row) for row in range(144)]
    pool_set = read_pool_set(tiny_pools)
    unlabelled = Unlabelled(tiny_pools, pool_set, np.arange(144), np.zeros(0, np.int64), names, dialogs)
    drawn = [choose(unlabelled, "random", 20, seed, None, None).indices for seed in range(50)]
    assert all(len(set(rows.tolist())) == 20 for rows in drawn)
    assert np.isin(dialogs[np.concatenate(drawn)] % 2, 0).mean() == pytest.approx(12 / 144, abs=0.03)


@pytest.mark.parametrize(("order", "expected"), [([1, 0, -1], [1, 0]), ([1, 0, 2], [])])
def test_without_a_fraction_known_labels_count_only_where_others_are_unknown(
    tiny_pools: Path, order: list[int], expected: list[int]
) -> None:
    pool_set = read_pool_set(tiny_pools).model_copy(update={"default_labelled_fraction": None})
    assert labelled_rows(pool_set, np.array(order)).tolist() == expected


def test_pools_without_any_left_to_label_are_refused(tiny_pools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("icalib.labelling.choose.labelled_rows", lambda pool_set, order: np.arange(len(order)))
    with pytest.raises(SettingError, match="no unlabelled training pools left"):
        Unlabelled.of(tiny_pools, None)
