"""What several annotators of one pool say together, and how far they agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from icalib.labelling.annotations import Annotation

Right = tuple[int, ...]


@dataclass(frozen=True)
class Agreement:
    """Krippendorff's α of annotators: do they agree whether a candidate is right, over pools that several annotated?

    `value` is NaN where it is not defined: all of them said the same of every candidate.
    """

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
    """Return the agreement over the pools with several annotators; None without such."""
    several = {pool_id: found for pool_id, found in by_pool.items() if len(found) > 1}
    if not several:
        return None
    starts = np.cumsum([0, *(num_candidates[pool_id] for pool_id in several)])
    ratings_AN = np.full((max(map(len, several.values())), starts[-1]), np.nan)  # α doesn't depend on who is which row
    for (pool_id, found), start in zip(several.items(), starts[:-1].tolist(), strict=True):
        for row_N, annotation in zip(ratings_AN, found, strict=False):
            row_N[start : start + num_candidates[pool_id]] = 0
            row_N[[start + index for index in annotation.right]] = 1
    return Agreement(krippendorff_alpha(ratings_AN), len(several))


def krippendorff_alpha(ratings_AN: npt.NDArray[np.float64]) -> float:
    """Return Krippendorff's α for nominal categories of N units by A annotators; NaN: not rated, or one category only.

    α = 1 − Dₒ/Dₑ from the coincidences o[k, l] = Σ_u (n_uk n_ul − [k = l] n_uk) / (m_u − 1) of units u that m_u ≥ 2
    annotators rated, n_uk of them as k (Krippendorff 2011, "Computing Krippendorff's alpha-reliability", C).
    """
    categories_K = np.unique(ratings_AN[~np.isnan(ratings_AN)])
    counts_NK = (ratings_AN[:, :, None] == categories_K).sum(0).astype(np.float64)
    counts_NK = counts_NK[counts_NK.sum(1) >= 2]
    weighted_NK = counts_NK / (counts_NK.sum(1, keepdims=True) - 1)
    coincidences_KK = weighted_NK.T @ counts_NK - np.diag(weighted_NK.sum(0))
    totals_K = coincidences_KK.sum(0)
    number = totals_K.sum()
    expected = (number**2 - (totals_K**2).sum()) / max(1.0, number - 1)
    return float(1 - (number - np.trace(coincidences_KK)) / expected) if expected else float("nan")
