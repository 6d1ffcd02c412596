"""Which dialogue is in which split, and in which order training pools become labelled."""

from __future__ import annotations

import hashlib
import string
from array import array
from collections import Counter
from collections.abc import Sequence
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from icalib.core.errors import DataError
from icalib.core.seeding import child_seed
from icalib.data.schema import SPLITS, Split

FRACTIONS = (0.8, 0.1, 0.1)
"""Train, validation, test, where a source has no split of its own."""


def assigned_split(dialog_id: str, seed: int) -> Split:
    """Return a split that depends on the dialogue's id and the seed alone, not on the other dialogues."""
    draw = child_seed(seed, "split", dialog_id) / 2**63
    if draw < FRACTIONS[0]:
        return "train"
    return "validation" if draw < FRACTIONS[0] + FRACTIONS[1] else "test"


def label_order(has_intents: Sequence[int], label_known: Sequence[int], seed: int) -> NDArray[np.int32]:
    """Return each training pool's index in the order in which pools become labelled, −1 where the label is unknown.

    Pools with intents come first, so that a small labelled part teaches intents too; both parts are shuffled by the
    seed, and a gap in the numbers is between them. `has_intents` and `label_known` are 0 or 1 for each pool.
    """
    intents, known = np.asarray(has_intents, dtype=bool), np.asarray(label_known, dtype=bool)
    draw = np.random.default_rng(child_seed(seed, "label order")).random(len(known))
    rows = np.flatnonzero(known)
    ordered = rows[np.lexsort((draw[rows], ~intents[rows]))]
    order = np.full(len(known), -1, dtype=np.int32)
    order[ordered] = np.arange(len(ordered), dtype=np.int32)
    if intents[rows].any():
        order[known & ~intents] += 1
    return order


class LeakCheck:
    """Checks that no dialogue is in two splits, and counts texts that are; holds ids and 8 bytes of each pool."""

    def __init__(self) -> None:
        self._split_of: dict[str, Split] = {}
        self._leaked: set[str] = set()
        self._pairs: dict[Split, array[int]] = {split: array("Q") for split in SPLITS}

    def add(self, dialog_id: str, split: Split, texts: Sequence[str]) -> None:
        """Add a pool by its dialogue and by the texts of its context and response."""
        if self._split_of.setdefault(dialog_id, split) != split:
            self._leaked.add(dialog_id)
        self._pairs[split].append(wording_key("\n".join(texts)))

    def num_dialogues(self) -> dict[str, int]:
        """Return the number of dialogues with at least one pool, by split."""
        return {**dict.fromkeys(SPLITS, 0), **Counter(self._split_of.values())}

    def num_copies_across_splits(self) -> int:
        """Return how many (context, response) texts of validation and test occur word for word in an earlier split; a
        DataError says that a dialogue is in two splits.
        """
        if self._leaked:
            named = ", ".join([*sorted(self._leaked)[:5], *["..."][: len(self._leaked) - 5]])
            raise DataError(
                f"{len(self._leaked)} dialogues are in two splits ({named})",
                "Keep every dialogue in one split, or leave the split out of the source to have it assigned.",
                field="split",
            )
        keys = {split: np.frombuffer(self._pairs[split], dtype=np.uint64) for split in SPLITS}
        in_validation = np.isin(keys["validation"], keys["train"])
        in_test = np.isin(keys["test"], np.concatenate([keys["train"], keys["validation"]]))
        return int(in_validation.sum() + in_test.sum())


_SIGNS = string.punctuation + "…“”‘’„«»¿¡–—。、，．！？：；（）「」"


def wording_key(text: str) -> int:
    """Return a 64-bit key of a text's words: case, white space and signs around a word don't count.

    A text of signs alone keeps them.
    """
    words = [word.strip(_SIGNS) for word in text.split()]
    return text_key(" ".join(filter(None, words)) or text)


def text_key(text: str) -> int:
    """Return a 64-bit key of a text; case, runs of white space, and whether accents are characters of their own (as
    macOS writes some) don't count.
    """
    plain = " ".join(normalize("NFC", text).lower().split())
    return int.from_bytes(hashlib.blake2b(plain.encode(), digest_size=8).digest(), "little")
