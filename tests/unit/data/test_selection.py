from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icalib.core.errors import SettingError
from icalib.data.selection import Selection
from icalib.data.splits import label_order

ORDER = np.random.default_rng(0).permutation(200)


@pytest.mark.parametrize("fraction", [0.005, 0.01, 0.07, 0.1, 0.29, 1.0])
def test_the_labelled_fraction_is_rounded_up(fraction: float) -> None:
    rows = Selection(labelled_fraction=fraction).rows("train", "labelled", ORDER)
    assert len(rows) == {0.005: 1, 0.01: 2, 0.07: 14, 0.1: 20, 0.29: 58, 1.0: 200}[fraction]
    assert sorted(ORDER[rows]) == list(range(len(rows)))
    assert rows.tolist() == sorted(rows)


@given(st.floats(0.001, 1), st.floats(0.001, 1), st.integers(1, 250))
def test_smaller_fractions_and_limits_are_contained_in_larger_ones(one: float, two: float, limit: int) -> None:
    small, large = sorted((one, two))
    limited = {"train": limit}
    inside = Selection.model_validate({"labelled_fraction": small, "limit": limited}).rows("train", "labelled", ORDER)
    wider = Selection.model_validate({"labelled_fraction": large, "limit": limited}).rows("train", "labelled", ORDER)
    whole = Selection(labelled_fraction=large).rows("train", "labelled", ORDER)
    assert set(inside) <= set(wider) <= set(whole)


@given(st.floats(0.001, 1), st.integers(1, 250), st.integers(0, 50))
def test_labelled_and_unlabelled_pools_share_none_and_make_up_all(fraction: float, limit: int, unknown: int) -> None:
    order = np.where(200 - unknown > ORDER, ORDER, -1)  # pools whose right candidate is unknown
    selection = Selection(labelled_fraction=fraction, limit={"train": limit})
    labelled, unlabelled, every = (selection.rows("train", part, order) for part in ("labelled", "unlabelled", "all"))
    assert not set(labelled) & set(unlabelled)
    assert sorted([*labelled, *unlabelled]) == every.tolist()
    assert len(every) == min(200, limit)
    assert (order[labelled] >= 0).all()
    assert len(labelled) == min(math.ceil(round(fraction * len(every), 6)), (order[every] >= 0).sum())


def test_other_splits_take_the_same_pools_in_every_run_and_not_the_first() -> None:
    order = np.full(500, -1)
    one, two = (Selection(labelled_fraction=f, limit={"test": 40}).rows("test", "all", order) for f in (0.1, 0.2))
    assert one.tolist() == two.tolist() == sorted(set(one))
    assert len(one) == 40
    assert one.max() > 250
    smaller = Selection(labelled_fraction=0.1, limit={"test": 20}).rows("test", "all", order)
    assert set(smaller) <= set(one)


def test_no_pool_is_an_error_that_names_split_and_cure() -> None:
    with pytest.raises(SettingError, match=r"no test pools.*Prepare data"):
        Selection(labelled_fraction=0.1).rows("test", "all", np.array([], np.int64))
    with pytest.raises(SettingError, match=r"no labelled pools.*limit is 5"):
        Selection(labelled_fraction=0.1, limit={"train": 5}).rows("train", "labelled", np.full(9, -1))


@pytest.mark.parametrize("label_seed", [None, 1])
def test_pools_that_a_run_has_chosen_count_towards_the_limit(label_seed: int | None) -> None:
    chosen = {90, 91, 92}
    selection = Selection(
        labelled_fraction=0.2, limit={"train": 20}, label_seed=label_seed, labelled_first=tuple(chosen)
    )
    labelled, unlabelled, every = (
        set(selection.rows("train", part, np.arange(100)).tolist()) for part in ("labelled", "unlabelled", "all")
    )
    assert chosen < labelled
    assert (len(labelled), len(unlabelled), len(every)) == (4, 16, 20)
    assert labelled | unlabelled == every
    assert every - chosen < set(range(20))
    assert "labelled_first" not in Selection(labelled_fraction=0.5).model_dump()  # stages stay what they were


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_pools_with_intents_are_labelled_first_whoever_draws(seed: int | None) -> None:
    has_intents = np.arange(100) % 10 == 3
    order = label_order(has_intents.tolist(), [True] * 90 + [False] * 10, seed=0)
    five, twenty = (
        set(Selection(labelled_fraction=one, label_seed=seed).rows("train", "labelled", order).tolist())
        for one in (0.05, 0.2)
    )
    with_intents = set(np.flatnonzero(has_intents[:90]).tolist())
    assert five < with_intents < twenty
    drawn = Selection(labelled_fraction=0.05, label_seed=0).rows("train", "labelled", order).tolist()
    assert five != set(drawn)
