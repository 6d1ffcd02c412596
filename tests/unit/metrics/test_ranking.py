from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from unit.metrics.made_predictions import pool_scores, ragged_pools

from icalib.metrics.ranking import average_precision, recall_at_k, reciprocal_rank, top_candidate


def rankings(logits: list[float], labels: list[int]) -> list[list[int]]:
    """Labels from first to last, for every way to break the ties (each as often as it is likely)."""
    orders = permutations(range(len(logits)))
    return [[labels[i] for i in sorted(order, key=lambda i: -logits[i])] for order in orders]


def plain_average_precision(ranking: list[int]) -> float:
    precisions = [sum(ranking[: place + 1]) / (place + 1) for place, right in enumerate(ranking) if right]
    return sum(precisions) / len(precisions)


@settings(max_examples=60)
@given(ragged_pools())
def test_metrics_are_means_over_all_ways_to_break_ties(pools: tuple[list[list[float]], list[list[int]]]) -> None:
    scores = pool_scores(*pools)
    ways = [rankings(logits, labels) for logits, labels in zip(*pools, strict=True)]
    for k in (1, 2, 5):
        expected = [np.mean([sum(way[:k]) / sum(way) for way in of_pool]) for of_pool in ways]
        assert recall_at_k(scores, k) == pytest.approx(expected)
    expected = [np.mean([plain_average_precision(way) for way in of_pool]) for of_pool in ways]
    assert average_precision(scores) == pytest.approx(expected)
    expected = [np.mean([1 / (1 + way.index(1)) for way in of_pool]) for of_pool in ways]
    assert reciprocal_rank(scores) == pytest.approx(expected)
    assert top_candidate(scores).hit == pytest.approx([np.mean([way[0] for way in of_pool]) for of_pool in ways])


def test_infinite_logits_rank_like_others() -> None:
    scores = pool_scores([[-np.inf, np.inf, np.inf]], [[0, 1, 0]], [[0, 1, 1]])
    assert recall_at_k(scores, 1)[0] == 0.5
    assert recall_at_k(scores, 2)[0] == 1


def test_the_top_candidate_is_the_one_with_the_largest_logit() -> None:
    top = top_candidate(pool_scores([[2, 1], [1, 2, 0]], [[1, 0], [1, 0, 0]], [[0.3, 0.4], [0.9, 0.6, 0.1]]))
    assert top.prob.tolist() == [0.3, 0.6]
    assert top.hit.tolist() == [1, 0]
