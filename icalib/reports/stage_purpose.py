"""What each stage does, in a few words for the line that shows its progress."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

_PURPOSES: Mapping[str, str] = MappingProxyType(
    {
        "tokens": "reads the pools once, for every method",
        "log-tokens": "reads the dialogue logs",
        "generated-tokens": "reads the generated texts",
        "post-training": "adapts the backbone, without labels",
        "word-vectors": "learns words, without labels",
        "intent-classifier": "learns intents",
        "teacher": "trains on the labelled pools",
        "teacher-bi-encoder": "trains the bi-encoder on the labelled pools",
        "student-bi-encoder": "trains the bi-encoder on labels and pseudo labels",
        "student": "trains on labels and pseudo labels",
        "pseudo-labels": "chooses pools that the teacher is sure of",
    }
)


def purpose(stage: str) -> str:
    """Return what a stage does; empty for stages that are not known.

    Example:
        >>> purpose("round-2/student"), purpose("member-1/teacher"), purpose("mine")
        ('trains on labels and pseudo labels', 'trains on the labelled pools', '')
        >>> purpose("round-1/scores"), purpose("round-1/student/validation/scores")
        ('scores pools without labels', 'scores validation pools')
    """
    group, _, name = stage.rpartition("/")
    label = re.sub(r"-\d+$", "", name)
    if label == "scores":
        split = group.rpartition("/")[2]
        return "scores pools without labels" if split.startswith("round") else f"scores {split} pools"
    return _PURPOSES.get(label, "")
