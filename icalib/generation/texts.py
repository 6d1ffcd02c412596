"""What generators ask of texts: sentences, and how alike two texts are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from icalib.data.bm25 import tokenize
from icalib.data.schema import Utterance

NEAR_DUPLICATE = 0.9
"""Token F1 above which two texts count as near-duplicates."""


def sentences(text: str) -> list[str]:
    """Split a text into sentences, after . ! ? and at line ends."""
    return [part for part in re.split(r"(?<=[.!?])\s+|\s*\n\s*", text.strip()) if part]


def token_f1(text: str, other: str) -> float:
    """Compute the harmonic mean of the fractions of each text's words that the other contains (SQuAD's measure)."""
    words, other_words = Counter(tokenize(text)), Counter(tokenize(other))
    if not words or not other_words:
        return float(words == other_words)
    return 2 * (words & other_words).total() / (words.total() + other_words.total())


def is_near_duplicate(text: str, other: str) -> bool:
    """Return whether two texts are nearly the same."""
    return token_f1(text, other) > NEAR_DUPLICATE


def question_index(context: Sequence[Utterance]) -> int:
    """Return the index of the question to answer: the user's last utterance, or else the last utterance."""
    from_user = [index for index, utterance in enumerate(context) if utterance.speaker == "user"]
    return from_user[-1] if from_user else len(context) - 1
