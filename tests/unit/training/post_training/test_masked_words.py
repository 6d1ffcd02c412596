from __future__ import annotations

import numpy as np
import pytest
from helpers.tiny_models import BUDGET

from icalib.data.encoding import Layout
from icalib.training.post_training.masked_tokens import Hidden, Vocabulary, hide

CLS, SEP, MASK = 2, 3, 4
LAYOUT = Layout(CLS, SEP, 0, 1, 900, 128, BUDGET, turn_separators=True)


def inputs(number: int) -> list[tuple[np.ndarray, int]]:
    rng = np.random.default_rng(1)
    context = [[rng.integers(5, 600, 8).astype(np.int32) for _ in range(4)] for _ in range(number)]
    return [LAYOUT.pair(LAYOUT.context_ids(turns[:3], None), turns[3]) for turns in context]


def hidden(encoded: list[tuple[np.ndarray, int]], share: float, seed: int = 0) -> Hidden:
    return hide(encoded, share, LAYOUT, Vocabulary(MASK, 600), np.random.default_rng(seed))


def test_words_are_hidden_at_the_share_and_separators_never() -> None:
    encoded = inputs(400)
    made = hidden(encoded, 0.3)
    places = [tuple(place) for place in made.places_N2.tolist()]
    assert len(places) == len(set(places)) == 400 * round(0.3 * 32)
    before = np.array([encoded[row][0][place] for row, place in places])
    after = np.array([made.encoded[row][0][place] for row, place in places])
    assert made.words_N.tolist() == before.tolist()
    assert not np.isin(before, [CLS, SEP]).any()
    assert np.mean(after == MASK) == pytest.approx(0.8, abs=0.03)
    assert np.mean(after == before) == pytest.approx(0.1, abs=0.03)
    touched = set(places)
    for row, ((old, start), (new, new_start)) in enumerate(zip(encoded, made.encoded, strict=True)):
        assert start == new_start
        assert all((row, place) in touched for place in np.flatnonzero(old != new).tolist())


def test_at_least_one_word_is_hidden() -> None:
    assert len(hidden(inputs(5), 0.001).places_N2) == 5


def test_other_draws_hide_other_words() -> None:
    encoded = inputs(20)
    assert hidden(encoded, 0.15, 1).places_N2.tolist() == hidden(encoded, 0.15, 1).places_N2.tolist()
    assert hidden(encoded, 0.15, 1).places_N2.tolist() != hidden(encoded, 0.15, 2).places_N2.tolist()
