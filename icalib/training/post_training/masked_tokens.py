"""Hiding words as BERT does (Devlin et al. 2019, §3.1), anew each time that an input comes up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from icalib.data.encoding import Encoded, Ids, Layout


class Vocabulary(NamedTuple):
    """What words may be replaced by: the id of [MASK], or one of `size` words."""

    mask_token: int
    size: int


class Hidden(NamedTuple):
    """Inputs with hidden words.

    `places_N2` are the words' places (input, position), `words_N` what stood there.
    """

    encoded: list[Encoded]
    places_N2: npt.NDArray[np.int64]
    words_N: npt.NDArray[np.int64]


def hide(
    encoded: Sequence[Encoded], share: float, layout: Layout, vocabulary: Vocabulary, rng: np.random.Generator
) -> Hidden:
    """Hide a share of each input's words, at least one: 80 % as [MASK], 10 % as another word, 10 % as they are.

    [CLS] and separators are no words.
    """
    special = [layout.cls, layout.separator]
    hidden: list[Encoded] = []
    places: list[tuple[int, int]] = []
    words: list[int] = []
    for row, (ids, start) in enumerate(encoded):
        ordinary = np.flatnonzero(~np.isin(ids, special))
        chosen = np.sort(rng.choice(ordinary, max(1, round(len(ordinary) * share)), False))
        words += ids[chosen].tolist()
        places += [(row, int(place)) for place in chosen]
        hidden.append((_replaced(ids, chosen, vocabulary, rng), start))
    return Hidden(hidden, np.array(places, np.int64), np.array(words, np.int64))


def _replaced(ids: Ids, chosen: npt.NDArray[np.int64], vocabulary: Vocabulary, rng: np.random.Generator) -> Ids:
    replaced = ids.copy()
    dice = rng.random(len(chosen))
    replaced[chosen[dice < 0.8]] = vocabulary.mask_token
    other = chosen[(dice >= 0.8) & (dice < 0.9)]
    replaced[other] = rng.integers(vocabulary.size, size=len(other))
    return replaced
