from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icalib.data.batching import ordered_batches, shuffled_batches

lengths_of_examples = st.lists(st.integers(1, 60), max_size=200)
sizes = st.integers(1, 20)
budgets = st.integers(1, 400)


def check_budget(batches: list[np.ndarray], lengths: list[int], size: int, budget: int) -> None:
    for batch in batches:
        assert 1 <= len(batch) <= size
        longest = max(lengths[int(index)] for index in batch)
        assert len(batch) * longest <= budget or len(batch) == 1


@given(lengths_of_examples, sizes, budgets)
def test_ordered_batches_hold_each_index_once_in_order_of_length(lengths: list[int], size: int, budget: int) -> None:
    batches = ordered_batches(lengths, size, budget)
    order = [int(index) for batch in batches for index in batch]
    assert sorted(order) == list(range(len(lengths)))
    assert [lengths[index] for index in order] == sorted(lengths)
    check_budget(batches, lengths, size, budget)


@given(lengths_of_examples, sizes, budgets, st.integers(0, 5), st.data())
def test_shuffled_batches_with_or_without_classes_hold_each_index_once_under_the_budget(
    lengths: list[int], size: int, budget: int, seed: int, data: st.DataObject
) -> None:
    some = st.lists(st.integers(0, 1), min_size=len(lengths), max_size=len(lengths))
    classes = data.draw(st.none() | some)
    batches = shuffled_batches(lengths, size, budget, np.random.default_rng(seed), classes=classes)
    assert sorted(int(index) for batch in batches for index in batch) == list(range(len(lengths)))
    check_budget(batches, lengths, size, budget)


def test_epochs_differ_and_batches_hold_like_lengths() -> None:
    lengths = np.random.default_rng(0).integers(5, 400, 2000)
    rng = np.random.default_rng(1)
    first, second = (shuffled_batches(lengths, 16, 16 * 400, rng) for _ in range(2))
    assert {tuple(sorted(batch)) for batch in first}.isdisjoint({tuple(sorted(batch)) for batch in second})
    padded = sum(len(batch) * int(lengths[batch].max()) for batch in first)
    assert padded < 1.1 * lengths.sum()  # without buckets it is about 1.9 times
    longest = [int(lengths[batch].max()) for batch in first]
    assert longest != sorted(longest)  # batches come in no order of length


def test_a_batch_is_cut_where_the_budget_or_the_size_is_reached() -> None:
    assert [batch.tolist() for batch in ordered_batches([5, 1, 3, 9, 4], 2, 10)] == [[1, 2], [4, 0], [3]]
    assert [batch.tolist() for batch in ordered_batches([4, 4, 4, 4, 4], 9, 12)] == [[0, 1, 2], [3, 4]]


@pytest.mark.parametrize(("negatives", "rights"), [(1, {8}), (3, {4}), (9, {1, 2})])
def test_each_batch_and_each_workers_part_of_it_has_the_classes_in_their_proportions(
    negatives: int, rights: set[int]
) -> None:
    rng = np.random.default_rng(0)
    classes = np.repeat([1, 0], [320, 320 * negatives])
    lengths = np.repeat(rng.integers(20, 200, 320), 1 + negatives)  # a context's pairs are about as long
    batches = shuffled_batches(lengths, 16, 16 * 250, rng, classes=classes)
    assert {int(classes[batch].sum()) for batch in batches} == rights
    if negatives == 1:
        assert {int(classes[batch[part::4]].sum()) for batch in batches for part in range(4)} == {2}
    padded = sum(len(batch) * int(lengths[batch].max()) for batch in batches)
    assert padded < 1.2 * lengths.sum()
