"""What results say in words never contradicts their table."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icalib.core.run_folder import RunFolder
from icalib.core.run_tables import RoundSummary
from icalib.metrics.significance import Interval
from icalib.reports.comparison import best_labels, method_rows
from icalib.reports.paired_tests import MethodTest
from icalib.reports.verdict import MethodFacts, verdict, verdict_of


def facts(label: str, mean: float, *, trained: bool = True, ranks: bool = True, **more: Any) -> MethodFacts:
    values = {"MAP": mean, "R@1": mean - 0.1, **more.pop("means", {})}
    return MethodFacts(
        label=label, is_trained=trained, ranks=ranks, num_seeds=more.pop("seeds", 3), means=values, **more
    )


def paired(first: MethodFacts, second: MethodFacts, p: float) -> MethodTest:
    return MethodTest("MAP", first.label, second.label, first.means["MAP"] - second.means["MAP"], p, p)


def summary(selected: int = 50, right: float = 0.9, base: float = 0.6) -> RoundSummary:
    return RoundSummary.model_construct(
        num_pools_selected=selected, pool_accuracy=right if selected else None, base_accuracy=base
    )


BM25 = facts("bm25", 0.4, trained=False)
READER = facts("bi-encoder", 0.5, trained=False)
BERT = facts("bert", 0.7)
TSST = facts("tsst", 0.72, rounds=(summary(),))


def said(methods: list[MethodFacts], tests: list[MethodTest]) -> str:
    return " ".join(verdict(methods, tests).sentences)


def warned(*methods: MethodFacts) -> str:
    return " ".join(verdict(methods, []).warnings)


@pytest.mark.parametrize(
    ("mean", "p", "word"), [(0.7, 0.001, "pays"), (0.51, 0.4, "not paid"), (0.3, 0.001, "did harm")]
)
def test_training_against_what_needs_no_labels(mean: float, p: float, word: str) -> None:
    bert = facts("bert", mean)
    assert word in said([READER, bert], [paired(bert, READER, p)])
    kept = facts("bert", mean, kept_start=True)
    assert "changed nothing" in said([READER, kept], [paired(kept, READER, p)])


@pytest.mark.parametrize(
    ("means", "verb"),
    [
        ({"ECE": 0.02, "NLL": 0.3}, "can be used"),
        ({"ECE": 0.2, "NLL": 0.3}, "can't be relied on"),
        ({"ECE": 0.2, "NLL": 0.3, "ECE@platt": 0.195, "NLL@platt": 0.2}, "can't be relied on"),
        ({"ECE": 0.2, "NLL": 0.3, "ECE@platt": 0.005, "NLL@platt": 0.4}, "can't be relied on"),
        ({"ECE": 0.2, "NLL": 0.3, "ECE@platt": 0.005, "NLL@platt": 0.2}, "calibration=platt"),
    ],
)
def test_whether_probabilities_can_be_used(means: dict[str, float], verb: str) -> None:
    ece = Interval(means["ECE"] - 0.01, means["ECE"] + 0.02)
    assert verb in said([facts("bert", 0.7, means=means, ece=ece)], [])


def test_warnings() -> None:
    poor = warned(facts("tsst", 0.7, rounds=(summary(50, 0.5, 0.6), summary(0))))
    assert "1 of 2 rounds selected no pool" in poor
    assert "50.0 %" in poor
    assert "60.0 %" in poor
    assert "candidates-only" in warned(BERT, facts("candidates-only", 0.9, trained=False))
    assert "No better than chance: bm25." in warned(BERT, facts("bm25", 0.2, trained=False, ranks=False))
    assert "--seeds" in warned(facts("a", 0.5, seeds=1), facts("b", 0.6, seeds=1))
    blind = facts("candidates-only", 0.3, trained=False, ranks=False)  # as it should
    assert not warned(BERT, READER, TSST, blind)


def test_always_saying_ten_percent_is_never_the_best_ece() -> None:
    """A ranker that always answers the base rate has an ECE of 0."""
    level = {"gap": 0.0, "mean_prob": 0.1, "num_pools": 200.0}
    both = {"bm25": {"R@1": 0.11, "ECE": 0.0, **level}, "bert": {"R@1": 0.6, "ECE": 0.03, **level}}
    shared = {"data": "pools/desk", "labelled": 0.1, "seed": 1, "seconds": {"total": 1}}
    rows = method_rows([{"method": method, "test": test, **shared} for method, test in both.items()])
    assert [row.ranks for row in rows] == [False, True]
    assert best_labels(rows, "ECE") == {"bert"}
    assert best_labels(rows[:1], "ECE") == set()


METHODS = ("bm25", "bi-encoder", "candidates-only", "bert", "tsst", "icast-teacher", "icast")


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[MethodFacts], list[MethodTest]]:
    labels = draw(st.lists(st.sampled_from(METHODS), min_size=1, unique=True))
    methods = [
        facts(
            label,
            draw(st.integers(1, 999)) / 1000,
            trained=label not in METHODS[:3],
            ranks=draw(st.booleans()),
            means={
                "ECE": draw(st.floats(0, 1)),
                "NLL": draw(st.floats(0, 2)),
                "ECE@platt": draw(st.floats(0, 1)),
                "NLL@platt": 1.0,
            },
            ece=Interval(draw(st.floats(0, 0.3)), draw(st.floats(0.3, 1)))
            if draw(st.booleans())
            else Interval(0, 0.01),
            rounds=tuple(
                draw(st.lists(st.builds(summary, st.integers(0, 90), st.floats(0, 1)), min_size=1, max_size=3))
            )
            if label in ("tsst", "icast")
            else (),
        )
        for label in labels
    ]
    tested = [one for one in methods if one.label != "candidates-only"]
    p_values = st.floats(0, 1)
    tests = [paired(a, b, draw(p_values)) for i, a in enumerate(tested) for b in tested[i + 1 :]]
    return methods, tests


@given(tables())
def test_no_verdict_contradicts_its_table(table: tuple[list[MethodFacts], list[MethodTest]]) -> None:
    methods, tests = table
    found = verdict(methods, tests)
    text = " ".join(found.sentences)
    by_label = {one.label: one for one in methods}
    means = {one.label: one.means["MAP"] for one in methods if one.label != "candidates-only"}
    significant = {frozenset((test.first, test.second)) for test in tests if test.p_holm < 0.05}
    assert len(found.sentences) <= 3
    if best := re.search(r"^(\S+) ranks best \(MAP ([\d.]+)", text):
        assert means[best[1]] == max(means.values())
        assert best[2] == f"{max(means.values()):.3f}"
        if beaten := re.search(r"beyond chance against (.+?)(?:, perhaps|[.])", text):
            labels = re.split(r", | and ", beaten[1])
            assert all(frozenset((best[1], label)) in significant for label in labels)
    outcome = r"(pays|did harm|not paid beyond chance) \((\S+) against (\S+):"
    for verb, learner, other in re.findall(outcome, text):
        assert (frozenset((learner, other)) in significant) == (verb != "not paid beyond chance")
        if verb != "not paid beyond chance":
            assert (means[learner] >= means[other]) == (verb == "pays") or means[learner] == means[other]
    if usable := re.search(r"probabilities of (\S+) can be used", text):
        interval = by_label[usable[1]].ece
        assert interval is not None
        assert interval.high <= 0.05
    for labels in re.findall(r"No better than chance: ([\w, -]+)", " ".join(found.warnings)):
        assert not any(by_label[label].ranks for label in re.split(r", | and ", labels))


def test_runs_are_judged_from_their_folders(runs: list[RunFolder]) -> None:
    best, learning, probabilities = verdict_of(runs).sentences
    means = {row.label: row.mean("MAP") for row in method_rows([run.result for run in runs])}
    assert f"MAP {means['icast']:.3f}" in best
    assert "(icast against bm25: MAP +" in learning
    assert "icast" in probabilities
