"""Token masking as in BERT (Devlin et al. 2019, §3.1), drawn again each time that an input is used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from icalib.data.encoding import Encoded, Ids, Layout


class Vocabulary(NamedTuple):
    """Replacements of masked tokens: the id of [MASK], or a random id below `size`."""

    mask_token: int
    size: int


class MaskedInputs(NamedTuple):
    """Inputs with masked tokens.

    `positions_N2` has the (input, position) of each masked token, `tokens_N` its original id.
    """

    encoded: list[Encoded]
    positions_N2: npt.NDArray[np.int64]
    tokens_N: npt.NDArray[np.int64]


def mask_tokens(
    encoded: Sequence[Encoded], fraction: float, layout: Layout, vocabulary: Vocabulary, rng: np.random.Generator
) -> MaskedInputs:
    """Choose a fraction of each input's tokens, at least one token, and mask them.

    80 % of them become [MASK], 10 % a random token, and 10 % stay unchanged. [CLS] and separators are never chosen.
    """
    special = [layout.cls, layout.separator]
    masked: list[Encoded] = []
    positions: list[tuple[int, int]] = []
    tokens: list[int] = []
    for row, (ids, start) in enumerate(encoded):
        eligible = np.flatnonzero(~np.isin(ids, special))
        chosen = np.sort(rng.choice(eligible, max(1, round(len(eligible) * fraction)), False))
        tokens += ids[chosen].tolist()
        positions += [(row, int(position)) for position in chosen]
        masked.append((_replaced(ids, chosen, vocabulary, rng), start))
    return MaskedInputs(masked, np.array(positions, np.int64), np.array(tokens, np.int64))


def _replaced(ids: Ids, chosen: npt.NDArray[np.int64], vocabulary: Vocabulary, rng: np.random.Generator) -> Ids:
    replaced = ids.copy()
    draws = rng.random(len(chosen))
    replaced[chosen[draws < 0.8]] = vocabulary.mask_token
    other = chosen[(draws >= 0.8) & (draws < 0.9)]
    replaced[other] = rng.integers(vocabulary.size, size=len(other))
    return replaced
