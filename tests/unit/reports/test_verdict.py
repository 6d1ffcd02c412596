"""What results say in words: one test per branch, and no sentence that contradicts its table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.reports.fake_runs import write_pools, write_run

from icalib.core.run_folder import RunFolder
from icalib.core.run_tables import RoundSummary
from icalib.metrics.significance import Interval
from icalib.reports.comparison import best_labels, method_rows
from icalib.reports.curve_verdict import CurveFacts, CurveStep, FreeBaseline, curve_verdict
from icalib.reports.paired_tests import MethodTest
from icalib.reports.verdict import MethodFacts, likeliest_reason, verdict
from icalib.reports.verdict_facts import verdict_of


def facts(label: str, mean: float, *, trained: bool = True, ranks: bool = True, **more: Any) -> MethodFacts:
    values = {"MAP": mean, "R@1": mean - 0.1, **more.pop("means", {})}
    return MethodFacts(
        label=label, is_trained=trained, ranks=ranks, num_seeds=more.pop("seeds", 3), means=values, **more
    )


def paired(first: MethodFacts, second: MethodFacts, p: float) -> MethodTest:
    return MethodTest("MAP", first.label, second.label, first.means["MAP"] - second.means["MAP"], p, p)


def summary(selected: int = 50, right: float | None = 0.9, base: float = 0.6, **more: Any) -> RoundSummary:
    fields: dict[str, Any] = {
        "round": 1,
        "num_pools_scored": 200,
        "num_pools_selected": selected,
        "num_pairs_selected": selected * 10,
        "num_pools_by_rule": {"confident": selected},
        "share_with_intents": 0.0,
        "pool_accuracy": right if selected else None,
        "pair_accuracy": None,
        "base_accuracy": base,
        "confusion": {},
        "gain_histogram_edges": [],
        "gain_histogram_counts": [],
        **more,
    }
    return RoundSummary(**fields)


BM25 = facts("bm25", 0.4, trained=False)
READER = facts("bi-encoder", 0.5, trained=False)
BERT = facts("bert", 0.7)


def said(methods: list[MethodFacts], tests: list[MethodTest]) -> str:
    return " ".join(verdict(methods, tests, "pools/desk").sentences)


def warned(*methods: MethodFacts) -> str:
    return " ".join(verdict(methods, [], "pools/desk").warnings)


def test_the_best_beyond_chance_of_all() -> None:
    text = said([BM25, READER, BERT], [paired(BM25, BERT, 0.001), paired(BERT, READER, 0.01)])
    assert "bert ranks best: MAP 0.700, R@1 0.600, MAP +0.200 over bi-encoder." in text
    assert "beyond chance, as against all others" in text


def test_the_best_against_some_could_be_chance() -> None:
    text = said([BM25, READER, BERT], [paired(BM25, BERT, 0.001), paired(BERT, READER, 0.2)])
    assert "It is beyond chance against bm25; against bi-encoder it could be chance." in text


def test_the_best_against_all_could_be_chance() -> None:
    text = said([BM25, READER, BERT], [paired(BM25, BERT, 0.3), paired(BERT, READER, 0.2)])
    assert "Against bi-encoder and bm25 it could be chance." in text


def test_without_tests_nothing_is_said_of_chance() -> None:
    text = said([READER, BERT], [])
    assert "It was not tested whether that is more than chance." in text
    assert "Training" not in text


def test_one_method_is_not_compared() -> None:
    assert said([BERT], []) == "bert ranks better than chance: MAP 0.700, R@1 0.600."


def test_where_none_ranks_nothing_else_is_said() -> None:
    found = verdict([facts("bert", 0.3, ranks=False, ece=Interval(0, 0.01))], [], "pools/desk")
    assert found.sentences[0].startswith("No method ranks better than chance")
    assert not found.warnings


@pytest.mark.parametrize(
    ("mean", "p", "words"),
    [
        (0.7, 0.001, "Training pays: bert is above bi-encoder"),
        (0.51, 0.4, "Training doesn't pay here: bert isn't above bi-encoder, which needs no labels, beyond chance"),
        (0.3, 0.001, "Training did harm here: bert is worse than bi-encoder"),
    ],
)
def test_training_against_free_baselines(mean: float, p: float, words: str) -> None:
    bert = facts("bert", mean)
    text = said([READER, bert], [paired(bert, READER, p)])
    assert words in text
    assert ("`icalib curve bert --data pools/desk`" in text) == (p > 0.05 or mean < 0.5)


@pytest.mark.parametrize(("mean", "p"), [(0.7, 0.001), (0.51, 0.4)])
def test_a_start_that_was_kept_owes_nothing_to_labels(mean: float, p: float) -> None:
    bert = facts("bert", mean, kept_start=True)
    text = said([READER, bert], [paired(bert, READER, p)])
    assert "no epoch of bert was better on validation than its start, so it ranks as before it saw labels" in text
    assert "Training pays" not in text


@pytest.mark.parametrize(
    ("mean", "p", "words"),
    [
        (0.8, 0.001, "Self-training helped: tsst is above bert"),
        (0.71, 0.4, "Self-training has not helped beyond chance here"),
        (0.6, 0.001, "Self-training did harm here"),
    ],
)
def test_self_training_against_its_teacher(mean: float, p: float, words: str) -> None:
    student = facts("tsst", mean, rounds=(summary(),))
    text = said([BERT, student], [paired(student, BERT, p)])
    assert words in text
    assert ("icalib curve bert" in text) == (mean < 0.8)


def test_a_student_without_its_teacher_cannot_be_judged() -> None:
    text = said([READER, facts("icast@regime.num_rounds=2", 0.8, rounds=(summary(),))], [])
    assert "can't be said" in text
    assert "`icalib compare icast-teacher icast@regime.num_rounds=2 --data pools/desk`" in text


@pytest.mark.parametrize(
    ("rounds", "words"),
    [
        ([summary(0), summary(0)], "No probability passed its thresholds"),
        ([summary(2)], "A round selected 2 pools, beside 90 labelled ones too few to matter"),
        ([summary(50, 0.5, 0.6)], "Only 50.0 % of the selected pools were labelled right: `--preset precise`"),
        ([summary(50, 0.65, 0.6)], "Only 65.0 %"),
        ([summary(50, 1.0, 1.0)], "Enough pools were selected, 100.0 % of them right"),
        ([summary(num_pools_with_intents=4)], "Intents were predicted in 2.0 % of the pools only"),
        ([summary()], "Enough pools were selected, 90.0 % of them right, so more labels may be worth little"),
        ([summary(50, None)], "Enough pools were selected, so more labels"),
    ],
)
def test_the_likeliest_reason(rounds: list[RoundSummary], words: str) -> None:
    student = facts("icast", 0.7, rounds=tuple(rounds), num_labelled=90)
    reason = likeliest_reason(student, "pools/my desk")
    assert reason.startswith(words)
    assert "`" in reason


@pytest.mark.parametrize(
    ("selected", "right", "words"),
    [
        (0, None, "No threshold was precise enough on ten validation pools, so nothing was selected: more labels"),
        (2, 0.9, "A round selected 2 pools, beside 90 labelled ones too few to matter: more labels"),
        (50, 0.5, "Only 50.0 % of the selected pools were labelled right: the thresholds promise more"),
    ],
)
def test_a_preset_that_is_in_use_is_not_recommended(selected: int, right: float | None, words: str) -> None:
    rounds = (summary(selected, right, validation_pools_selected=selected, validation_accuracy=right),)
    reason = likeliest_reason(facts("icast", 0.7, rounds=rounds, num_labelled=90), "pools/desk")
    assert reason.startswith(words)
    assert "--preset" not in reason


@pytest.mark.parametrize(
    ("means", "words"),
    [
        (
            {"ECE": 0.02, "NLL": 0.3},
            "The probabilities of bert can be used as they are: ECE 0.020 (95 % interval 0.010–",
        ),
        (
            {"ECE": 0.02, "NLL": 0.3, "ECE@platt": 0.005, "NLL@platt": 0.2},
            "can be used as they are: ECE 0.020 (95 % interval 0.010–0.040); 0.005 with `--set calibration=platt`",
        ),
        ({"ECE": 0.02, "NLL": 0.3, "ECE@platt": 0.015, "NLL@platt": 0.2}, "can be used as they are"),
        ({"ECE": 0.02, "NLL": 0.3, "ECE@platt": 0.005, "NLL@platt": 0.4}, "can be used as they are"),
        (
            {"ECE": 0.2, "NLL": 0.3, "ECE@platt": 0.005, "NLL@platt": 0.2, "ECE@isotonic": 0.004, "NLL@isotonic": 0.25},
            "0.005 with platt; add `--set calibration=platt`",
        ),
        ({"ECE": 0.2, "NLL": 0.3}, "Don't rely on the probabilities of bert"),
    ],
)
def test_whether_probabilities_can_be_used(means: dict[str, float], words: str) -> None:
    ece = Interval(means["ECE"] - 0.01, means["ECE"] + 0.02)
    assert words in said([facts("bert", 0.7, means=means, ece=ece)], [])


def test_warnings_of_pseudo_labels() -> None:
    text = warned(facts("tsst", 0.7, rounds=(summary(50, 0.5, 0.6), summary(0))))
    assert "1 of 2 rounds selected no pool" in text
    assert (
        "50.0 % of the pools that got pseudo labels are right, fewer than if every pool had been taken (60.0 %)" in text
    )
    assert not warned(facts("tsst", 0.7, rounds=(summary(),)))


def test_warnings_of_pools_and_seeds() -> None:
    assert "These pools give right answers away" in warned(BERT, facts("candidates-only", 0.9, trained=False))
    assert "No better than chance: bm25." in warned(BERT, facts("bm25", 0.2, trained=False, ranks=False))
    blind = facts("candidates-only", 0.3, trained=False, ranks=False)  # as it should
    assert not warned(BERT, blind, facts("bm25", 0.4, trained=False))
    assert "One seed each" in warned(facts("a", 0.5, seeds=1), facts("b", 0.6, seeds=1))
    assert not warned(BERT, READER)


def result(method: str, **test: float) -> dict[str, Any]:
    return {"method": method, "data": "pools/desk", "labelled": 0.1, "seed": 1, "test": test, "seconds": {"total": 1}}


def test_always_saying_ten_percent_is_never_the_best_ece() -> None:
    """A ranker that always answers the base rate has an ECE of 0."""
    level = {"gap": 0.0, "mean_prob": 0.1, "num_pools": 200.0}
    rows = method_rows(
        [result("bm25", **{"R@1": 0.11}, ECE=0.0, **level), result("bert", **{"R@1": 0.6}, ECE=0.03, **level)]
    )
    assert [row.ranks for row in rows] == [False, True]
    assert best_labels(rows, "ECE") == {"bert"}
    assert best_labels(rows[:1], "ECE") == set()


@pytest.mark.parametrize(
    ("rise", "free", "words"),
    [
        (None, None, ["one number of labels"]),
        (CurveStep(10, 80, 0.05, 0.01), None, ["bert rises: MAP +0.050", "next 100 labels are worth about +0.020 MAP"]),
        (CurveStep(10, 80, 0.05, 0.0001), None, ["p < 0.001"]),
        (CurveStep(10, 80, -0.05, 0.01), None, ["does not rise"]),
        (CurveStep(10, 80, 0.05, 0.3), None, ["does not rise"]),
        (None, FreeBaseline("bm25", 80, 0.1, 0.01), ["With 80 labels it is above bm25"]),
        (None, FreeBaseline("bm25", 80, -0.1, 0.01), ["it is below bm25"]),
        (None, FreeBaseline("bm25", 80, 0.1, 0.2), ["isn't above bm25, which needs none, beyond chance"]),
    ],
)
def test_a_curve(rise: CurveStep | None, free: FreeBaseline | None, words: list[str]) -> None:
    text = curve_verdict(CurveFacts("bert", "MAP", rise, (100, 0.02), free))
    assert all(one in text for one in words)


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
            num_labelled=draw(st.none() | st.integers(1, 500)),
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
    found = verdict(methods, tests, "pools/desk")
    text = " ".join(found.sentences)
    means = {one.label: one.means["MAP"] for one in methods if one.label != "candidates-only"}
    significant = {(t.first, t.second) for t in tests if t.p_holm < 0.05} | {
        (t.second, t.first) for t in tests if t.p_holm < 0.05
    }
    if best := re.search(r"^(\S+) ranks best: MAP ([\d.]+)", text):
        assert means[best[1]] == max(means.values())
        assert best[2] == f"{max(means.values()):.3f}"
        if "That is beyond chance" in text:
            assert all(
                (best[1], other) in significant or means[other] == means[best[1]] for other in means if other != best[1]
            )
    for above, below in re.findall(r"(?:Training pays|Self-training helped): (\S+) is above ([\w-]+)", text):
        assert means[above] > means[below]
        assert (above, below) in significant
    for below, above in re.findall(r"(?:Training did harm here): (\S+) is worse than ([\w-]+)", text):
        assert means[below] < means[above]
        assert (below, above) in significant
    by_label = {one.label: one for one in methods}
    if usable := re.search(r"The probabilities of (\S+) can be used as they are", text):
        interval = by_label[usable[1]].ece
        assert interval is not None
        assert interval.high <= 0.05
    for labels in re.findall(r"No better than chance: ([\w, -]+)", " ".join(found.warnings)):
        assert not any(by_label[label].ranks for label in re.split(r", | and ", labels))


def test_runs_are_judged_from_their_folders(runs: list[RunFolder]) -> None:
    found = verdict_of(runs)
    means = {row.label: row.mean("MAP") for row in method_rows([run.result for run in runs])}
    assert found.sentences[0].startswith(f"icast ranks best: MAP {means['icast']:.3f}")
    assert any(sentence.startswith("Training pays: icast is above bm25") for sentence in found.sentences)

    assert verdict_of(runs[-1:]).sentences[0].startswith("icast ranks better than chance")


def test_commands_name_pools_in_an_object_store(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs", write_pools(tmp_path / "desk"), "icast", 1)
    run.write_json("result.json", {**run.result, "data": "s3://bucket/pools/desk"})
    text = " ".join(verdict_of([run]).sentences)
    assert "`icalib compare icast-teacher icast --data s3://bucket/pools/desk`" in text


def test_the_best_student_whose_teacher_is_compared_is_judged() -> None:
    icast, tsst = (facts(name, mean, rounds=(summary(),)) for name, mean in (("icast", 0.9), ("tsst", 0.8)))
    text = said([BERT, tsst, icast], [paired(tsst, BERT, 0.001), paired(icast, BERT, 0.001)])
    assert "Self-training helped: tsst is above bert" in text
    assert "can't be said" not in text
