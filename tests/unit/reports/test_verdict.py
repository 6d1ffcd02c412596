"""What results say in words never contradicts their table."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icalib.core.run_tables import RoundSummary
from icalib.metrics.significance import Interval
from icalib.reports.paired_tests import MethodTest
from icalib.reports.verdict import MethodFacts, verdict


def facts(label: str, mean: float, *, trained: bool = True, ranks: bool = True, **more: Any) -> MethodFacts:
    means = {"MAP": mean, "R@1": mean - 0.1, **more.pop("means", {})}
    return MethodFacts(label, trained, ranks, more.pop("seeds", 3), means, **more)


def paired(first: MethodFacts, second: MethodFacts, p: float) -> MethodTest:
    return MethodTest("MAP", first.label, second.label, first.means["MAP"] - second.means["MAP"], p, p)


def summary(selected: int = 50, right: float = 0.9, base: float = 0.6) -> RoundSummary:
    return RoundSummary.model_construct(
        num_pools_scored=9, num_pools_selected=selected, pool_accuracy=right if selected else None, base_accuracy=base
    )


READER = facts("bi-encoder", 0.5, trained=False)
BERT = facts("bert", 0.7)


def said(methods: list[MethodFacts], tests: list[MethodTest]) -> str:
    return " ".join(verdict(methods, tests).sentences)


@pytest.mark.parametrize(
    ("mean", "p", "word"), [(0.7, 0.001, "pays"), (0.51, 0.4, "not paid"), (0.3, 0.001, "did harm")]
)
def test_training_against_what_needs_no_labels(mean: float, p: float, word: str) -> None:
    bert = facts("bert", mean)
    assert word in said([READER, bert], [paired(bert, READER, p)])


CONTROL = facts("tsst@regime.control=true", 0.74, rounds=(summary(),))
STUDENT = facts("tsst", 0.72, rounds=(summary(),))


@pytest.mark.parametrize(
    ("methods", "words"),
    [
        ([BERT, STUDENT], "self-training pays (tsst against bert"),
        ([BERT, STUDENT, CONTROL], "self-training did harm (tsst against tsst@regime.control=true"),
        ([BERT, CONTROL], None),  # which has no pseudo labels
        ([BERT, facts("tsst@regime.num_rounds=2", 0.72, rounds=(summary(),))], None),  # bert may differ in more
    ],
)
def test_self_training_against_what_differs_in_pseudo_labels_alone(
    methods: list[MethodFacts], words: str | None
) -> None:
    text = said(methods, [paired(a, b, 0.001) for a, b in combinations(methods, 2)])
    assert words in text.replace("Self", "self") if words else "elf-training" not in text


@pytest.mark.parametrize(
    ("means", "verb"),
    [
        ({"ECE": 0.02, "NLL": 0.3}, "can be used"),
        ({"ECE": 0.02, "NLL": 0.3, "ECE_top1": 0.03}, "can be used"),
        ({"ECE": 0.02, "NLL": 0.3, "ECE_top1": 0.04}, "takes more test pools to tell (ECE_top1 0.040"),
        ({"ECE": 0.02, "NLL": 0.3, "ECE_top1": 0.181}, "can't be relied on (ECE_top1 0.181"),
        (
            {"ECE": 0.02, "NLL": 0.3, "ECE_top1": 0.2, "NLL@pool-softmax": 0.2, "ECE_top1@pool-softmax": 0.03},
            "0.190–0.220), by `--set calibration=NAME`: pool-softmax has 0.030",
        ),
        ({"ECE": 0.2, "NLL": 0.3}, "can't be relied on"),
        ({"ECE": 0.2, "NLL": 0.3, "ECE@platt": 0.005, "NLL@platt": 0.2}, "platt has 0.005"),
    ],
)
def test_whether_probabilities_can_be_used(means: dict[str, float], verb: str) -> None:
    intervals = {
        name: Interval(means[name] - 0.01, means[name] + 0.02) for name in ("ECE", "ECE_top1") if name in means
    }
    assert verb in said([facts("bert", 0.7, means=means, intervals=intervals)], [])


def test_few_pools_that_are_all_right_do_not_show_that_probabilities_can_be_used() -> None:
    """Six of six: resamples don't vary, but R@1 may be 0.41 beside a probability of 0.99."""
    means = {"ECE": 0.008, "ECE_top1": 0.008, "R@1": 1.0, "NLL": 0.01}
    intervals = {name: Interval(0.0, 0.012) for name in ("ECE", "ECE_top1")}
    few = facts("bert", 1.0, means=means, intervals=intervals, recall_interval=Interval(0.41, 1.0))
    assert "takes more test pools to tell (R@1 1.000, 95 % interval 0.410–1.000)" in said([few], [])
    assert "can be used as they are" in said([replace(few, recall_interval=Interval(0.95, 1.0))], [])


@pytest.mark.parametrize(
    ("methods", "warns"),
    [
        ([facts("tsst", 0.72, rounds=(summary(50, 0.5, 0.6),))], True),  # fewer right than guessed
        ([facts("tsst", 0.72, rounds=(summary(), summary(0)))], True),
        ([BERT, facts("candidates-only", 0.9, trained=False)], True),
        ([BERT, facts("bm25", 0.2, trained=False, ranks=False)], True),
        ([facts("a", 0.5, seeds=1), facts("b", 0.6, seeds=1)], True),
        ([facts("bert", 0.3, ranks=False), facts("candidates-only", 0.9, trained=False)], True),  # it alone ranks
        ([facts("tsst", 0.3, ranks=False, rounds=(summary(0),))], True),
        ([facts("bert", 0.3, ranks=False), facts("bm25", 0.2, trained=False, ranks=False)], False),  # a sentence
        ([BERT, READER, facts("tsst", 0.72, rounds=(summary(),)),
          facts("candidates-only", 0.3, trained=False, ranks=False)], False),  # as it should
    ],
)  # fmt: skip
def test_what_casts_doubt_on_results_is_warned_of(methods: list[MethodFacts], warns: bool) -> None:
    assert bool(verdict(methods, []).warnings) == warns


@pytest.mark.parametrize(
    ("one_ranks", "words"), [(True, "bert ranks better than chance: MAP 0.700"), (False, "No method ranks better")]
)
def test_a_larger_mean_with_r1_at_chance_is_not_the_best(one_ranks: bool, words: str) -> None:
    lucky = facts("lucky", 0.71, ranks=False, means={"ECE": 0.01, "NLL": 0.3}, intervals={"ECE": Interval(0.005, 0.02)})
    bert = facts("bert", 0.7, ranks=one_ranks)
    text = said([lucky, bert], [paired(lucky, bert, 0.4)])
    assert text.startswith(words)
    assert "can be used" not in text


@given(st.lists(st.integers(1, 999), min_size=2, max_size=4, unique=True), st.data())
def test_the_best_has_the_largest_mean_and_beats_whom_the_tests_say(means: list[int], data: st.DataObject) -> None:
    methods = [facts(f"m{index}", mean / 1000) for index, mean in enumerate(means)]
    p_values = data.draw(st.lists(st.floats(0, 1), min_size=len(means) ** 2, max_size=len(means) ** 2))
    tests = [paired(a, b, p_values.pop()) for i, a in enumerate(methods) for b in methods[i + 1 :]]
    best, *others = sorted(methods, key=lambda one: -one.means["MAP"])
    text = said(methods, tests)
    beaten, _, perhaps = text.partition("perhaps by chance")
    assert text.startswith(f"{best} ranks best (MAP {best.means['MAP']:.3f}")
    p_of = {frozenset((test.first, test.second)): test.p_holm for test in tests}
    for one in others:
        significant = p_of[frozenset((best.label, one.label))] < 0.05
        assert (one.label in beaten, one.label in perhaps) == (significant, not significant)
