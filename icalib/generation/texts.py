"""What generators ask of texts: sentences, and how alike two texts are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from icalib.data.bm25 import tokenize
from icalib.data.schema import Utterance

NEAR_DUPLICATE = 0.9
"""Token F1 above which a text only repeats another one."""


def sentences(text: str) -> list[str]:
    """A text's sentences, cut after . ! ? and at line ends."""
    return [part for part in re.split(r"(?<=[.!?])\s+|\s*\n\s*", text.strip()) if part]


def token_f1(text: str, other: str) -> float:
    """Harmonic mean of the shares of either text's words that the other has, too (as SQuAD measures answers)."""
    words, other_words = Counter(tokenize(text)), Counter(tokenize(other))
    if not words or not other_words:
        return float(words == other_words)
    return 2 * (words & other_words).total() / (words.total() + other_words.total())


def is_near_duplicate(text: str, other: str) -> bool:
    """Whether a text only repeats another one."""
    return token_f1(text, other) > NEAR_DUPLICATE


def question_place(context: Sequence[Utterance]) -> int:
    """Place of the question that an answer replies to: the user's last utterance, else the last one."""
    asked = [place for place, utterance in enumerate(context) if utterance.speaker == "user"]
    return asked[-1] if asked else len(context) - 1
