"""What several annotators of one pool say together, and how far they agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from icalib.labelling.agreement import cohen_kappa, krippendorff_alpha
from icalib.labelling.annotations import Annotation

Right = tuple[int, ...]


@dataclass(frozen=True)
class Agreement:
    """Agreement of annotators on whether a candidate is right, over the pools that several annotated.

    `value` is NaN where it is not defined: all of them said the same of every candidate.
    """

    measure: str
    value: float
    num_pools: int


def majority(annotations: Sequence[Annotation], num_candidates: int) -> Right | None:
    """Return the right candidates of a pool by the majority for each candidate; None is a conflict.

    It is a conflict if as many annotators call a candidate right as wrong, or if no candidate has a majority although
    most annotators call one right.
    """
    number = len(annotations)
    votes = Counter(index for annotation in annotations for index in annotation.right)
    right = tuple(index for index in range(num_candidates) if 2 * votes[index] > number)
    if any(2 * count == number for count in votes.values()):
        return None
    num_none = sum(not annotation.right for annotation in annotations)
    return right if right or 2 * num_none > number else None


def majority_intents(annotations: Sequence[Annotation], num_utterances: int) -> list[list[str]]:
    """Return the intents of each utterance that most of those gave who gave it any; none where nobody did."""
    found: list[list[str]] = []
    for turn in range(num_utterances):
        given = [one.intents[turn] for one in annotations if turn < len(one.intents) and one.intents[turn]]
        votes = Counter(intent for intents in given for intent in intents)
        found.append(sorted(intent for intent, count in votes.items() if 2 * count > len(given)))
    return found


def agreement(by_pool: Mapping[str, Sequence[Annotation]], num_candidates: Mapping[str, int]) -> Agreement | None:
    """Return the agreement over pools with several annotators: Cohen's κ if the same two have them all, else α.

    None without such pools.
    """
    several = {pool_id: found for pool_id, found in by_pool.items() if len(found) > 1}
    if not several:
        return None
    annotators = sorted({annotation.annotator for found in several.values() for annotation in found})
    starts = np.cumsum([0, *(num_candidates[pool_id] for pool_id in several)])
    ratings_AN = np.full((len(annotators), starts[-1]), np.nan)
    for (pool_id, found), start in zip(several.items(), starts[:-1].tolist(), strict=True):
        for annotation in found:
            row = ratings_AN[annotators.index(annotation.annotator), start : start + num_candidates[pool_id]]
            row[:] = 0
            row[list(annotation.right)] = 1
    if len(annotators) == 2:
        first, second = ratings_AN.astype(np.int64)
        return Agreement("Cohen's κ", cohen_kappa(first, second), len(several))
    return Agreement("Krippendorff's α", krippendorff_alpha(ratings_AN), len(several))
