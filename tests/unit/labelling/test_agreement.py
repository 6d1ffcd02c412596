from __future__ import annotations

import numpy as np
import pytest

from icalib.labelling.annotations import Annotation
from icalib.labelling.consensus import Agreement, agreement, krippendorff_alpha, majority, majority_intents

NAN = float("nan")


def said(annotator: str, *right: int, pool: str = "p", intents: tuple[tuple[str, ...], ...] = ()) -> Annotation:
    return Annotation(pool, annotator, None, right, intents)


def test_alpha_is_that_of_krippendorffs_example() -> None:
    """Krippendorff 2011, C: four observers, twelve units, missing values; α = 0.743 for nominal data."""
    ratings = [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, NAN, NAN, NAN],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, NAN, 3],
        [NAN, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, NAN],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, NAN],
    ]
    assert krippendorff_alpha(np.array(ratings)) == pytest.approx(0.743, abs=5e-4)


def test_agreement_without_disagreement_or_chance_is_not_defined() -> None:
    assert np.isnan(krippendorff_alpha(np.zeros((2, 3))))


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([(1,)], (1,)),
        ([()], ()),
        ([(1,), (1,), (2,)], (1,)),
        ([(0, 1), (1,), (0,)], (0, 1)),
        ([(1,), (2,)], None),  # each has as many votes for as against
        ([(1,), (1, 2)], None),
        ([(0,), (1,), (2,)], None),  # most say that one is right, but not which
        ([(), (), (2,)], ()),
        ([(), (1,)], None),
    ],
)
def test_the_majority_decides_for_each_candidate(answers: list[tuple[int, ...]], expected: object) -> None:
    assert majority([said(str(number), *right) for number, right in enumerate(answers)], 4) == expected


def test_intents_are_those_of_most_who_gave_any() -> None:
    answers = [
        said("a", intents=(("OQ",), ("PA", "IR"))),
        said("b", intents=(("OQ",), ("PA",))),
        said("c", intents=((), ("IR",))),
        said("d"),
    ]
    assert majority_intents(answers, 3) == [["OQ"], ["IR", "PA"], []]


def test_agreement_is_over_the_pools_of_several_annotators() -> None:
    pools = {
        "p": [said("a", 0), said("b", 0)],
        "q": [said("b", 1, pool="q"), said("a", 0, pool="q")],
        "r": [said("a", 1)],
    }
    found = agreement(pools, {"p": 3, "q": 2, "r": 3})
    assert found == Agreement(krippendorff_alpha(np.array([[1, 0, 0, 1, 0], [1, 0, 0, 0, 1]], float)), 2)
    assert agreement({"r": [said("a", 1)]}, {"r": 3}) is None
