from __future__ import annotations

import io
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text
from unit.metrics.made_predictions import prediction_table
from unit.reports.fake_runs import write_pools, write_run

from icalib.core.errors import SettingError
from icalib.core.events import Event, Message, Progress, StageFinished, StageStarted
from icalib.core.process import QUIET
from icalib.core.run_folder import RunFolder
from icalib.metrics.summary import summarise
from icalib.reports import paired_tests as paired
from icalib.reports import verdict as verdicts
from icalib.reports.comparison import MethodRow, best_labels, by_data, method_rows, run_results
from icalib.reports.console import PlainConsole, text_table
from icalib.reports.html import write_report
from icalib.reports.paired_tests import MethodTest, paired_tests
from icalib.reports.progress import TerminalProgress
from icalib.reports.terminal import print_runs, print_shifts
from icalib.reports.verdict import verdict_of


def _result(method: str, seed: int, labelled: float = 0.05, **test: float | None) -> dict[str, Any]:
    shared = {"run": f"runs/{method}", "data": "pools/desk", "validation": test, "seconds": {"teacher": 1, "total": 2}}
    return {"method": method, "seed": seed, "labelled": labelled, "test": test, **shared}


def _console(width: int = 160) -> tuple[Console, io.StringIO]:
    stream = io.StringIO()
    return Console(file=stream, width=width, color_system=None), stream


def test_rows_have_mean_and_sample_deviation() -> None:
    (row,) = method_rows([_result("a", 2, MAP=0.5), _result("a", 1, MAP=0.7)])
    assert row.mean("MAP") == pytest.approx(0.6)
    assert row.deviation("MAP") == pytest.approx(0.141421, abs=1e-6)
    assert [result["seed"] for result in row.results] == [1, 2]
    assert row.mean("ECE") is None
    fractions = [_result("a", 1, labelled=0.01, MAP=0.4), _result("a", 1, labelled=0.05, MAP=0.5)]
    assert [row.label for row in method_rows(fractions)] == ["a 1 %", "a 5 %"]


def test_best_follows_the_metrics_direction_and_printed_digits() -> None:
    rows = method_rows([_result("a", 1, MAP=0.70001, ECE=0.1), _result("b", 1, MAP=0.70004, ECE=0.05)])
    assert best_labels(rows, "MAP") == {"a", "b"}
    assert best_labels(rows, "ECE") == {"b"}
    assert best_labels(rows[:1], "ECE") == set()


def test_what_ranks_by_chance_is_never_the_best() -> None:
    """A ranker that always answers the base rate has an ECE of 0."""
    level = {"R@1_chance": 0.135}
    chance, fair = {"R@1": 0.11, "ECE": 0.0, **level}, {"R@1": 0.6, "ECE": 0.03, **level}
    rows = method_rows([_result("bm25", 1, **chance), _result("bert", 1, **fair)])
    assert [row.ranks for row in rows] == [False, True]
    assert best_labels(rows, "ECE") == {"bert"}


def _ranked(labels: list[list[int]], *, perfectly: bool) -> MethodRow:
    """The row of a ranker on some pools: perfect, or with equal scores, whose R@1 is that of chance."""
    logits = [[float(label * perfectly) for label in pool] for pool in labels]
    table = summarise(prediction_table(logits, labels), threshold=0.5, seed=1, num_bootstrap=0)
    values = dict(zip(table["metric"].to_pylist(), table["value"].to_pylist(), strict=True))
    (row,) = method_rows([_result("bert", 1, **values)])
    return row


@pytest.mark.parametrize(
    "labels",
    [
        [[1] * 5 + [0] * 5] * 400,  # of five right candidates, R@1 finds one at best
        [[1, 0]] * 200 + [[1] + [0] * 17] * 200,  # chance is the mean of the pools', not of the pairs
        [[1] + [0] * 9] * 100 + [[0] * 10] * 300,  # R@1 doesn't count the pools without a right candidate
    ],
)
def test_chance_is_that_of_the_pools_that_r_at_1_counts(labels: list[list[int]]) -> None:
    assert _ranked(labels, perfectly=True).ranks
    assert not _ranked(labels, perfectly=False).ranks


def test_pool_sets_of_one_name_are_tables_of_their_own(tmp_path: Path) -> None:
    """The same dialogues, prepared with other wrong candidates: their pools have the same ids."""
    pools = [write_pools(tmp_path / digest / "desk", digest=digest) for digest in ("5f0c2a9d11e7b3c4", "77aa00")]
    found = [write_run(tmp_path / data.parent.name, data, "tsst", 1) for data in pools]
    assert {"desk (5f0c2a9d)", "desk (77aa00)"} == set(by_data(run_results(found)))
    console, stream = _console()
    print_runs(found, console)
    assert all(f"desk ({digest}), labelled" in stream.getvalue() for digest in ("5f0c2a9d", "77aa00"))
    assert list(by_data(run_results(found[:1]))) == ["desk"]


def _limited(folder: Path, data: Path, method: str, seed: int, limit: int) -> RunFolder:
    return write_run(folder, data, method, seed, config={"limit": {"train": limit}, "experiment": folder.name})


def test_runs_with_other_settings_are_rows_of_their_own(tmp_path: Path) -> None:
    data = write_pools(tmp_path / "desk")
    few, more, many = ([(f"{limit}-{seed}", seed, limit) for seed in (1, 2)] for limit in (100, 200, 400))
    found = [
        _limited(tmp_path / name, data, "tsst", seed, limit) for name, seed, limit in (*few[:1], *many, *more, *few[1:])
    ]
    rows = method_rows(run_results([*found, write_run(tmp_path, data, "bm25", 1), *found[:2]]))
    labels = ["tsst@limit.train=100", "tsst@limit.train=400", "tsst@limit.train=200", "bm25"]
    assert [(row.label, row.num_seeds) for row in rows] == list(zip(labels, (2, 2, 2, 1), strict=True))
    assert {test.first for test in paired_tests({row.label: row.runs for row in rows})} <= set(labels)
    sentences, report = verdict_of(found).sentences, write_report(found, tmp_path / "report.html", "limits")
    assert any(label in sentences[0] for label in labels[:3])
    assert all(label in report.read_text() for label in labels[:3])


def test_settings_of_the_method_name_a_row_before_limits() -> None:
    variants = [{"limit.test": test, "settings.similarity.ridge": ridge} for test, ridge in (("60", "1"), ("100", "2"))]
    found = [{**_result("bert", 1, MAP=0.5), "settings": settings} for settings in variants]
    assert [row.label for row in method_rows(found)] == ["bert@similarity.ridge=1", "bert@similarity.ridge=2"]


def test_variants_on_other_pools_are_rows_of_their_own(tmp_path: Path) -> None:
    """One's name has the setting, and the other's is the method's alone."""
    data = write_pools(tmp_path / "desk")
    found = [_limited(tmp_path / f"tsst-{limit}", data, "tsst", 1, limit) for limit in (100, 200)]
    shifts = [
        {**run.result, "run": str(run.path), "trained_on": str(data), "data": "other", "digest": "1", "limit": None}
        for run in found
    ]
    moved = [RunFolder(run.path.rename(run.path.with_name(f"run-{number}"))) for number, run in enumerate(found)]
    for shift, run in zip(shifts, moved, strict=True):
        shift["run"] = str(run.path)
    shifts[0]["test"]["R@1"] = 0.123
    console, stream = _console()
    print_shifts(shifts, moved, console)
    assert all(text in stream.getvalue() for text in ("0.123", "limit.train=100", "limit.train=200"))


def test_a_variant_and_the_same_setting_by_set_are_told_apart_or_one_row() -> None:
    def made(method: str, seed: int, **settings: str) -> dict[str, Any]:
        return {**_result(method, seed, MAP=0.5), "settings": settings}

    variant = made("tsst@temperature=0.5", 3, temperature="0.5")
    found = [made("tsst", 1), made("tsst", 2, temperature="0.5", **{"training.epochs": "1"}), variant]
    assert [row.label for row in method_rows(found)] == [
        "tsst@temperature=null,training.epochs=null",
        "tsst@temperature=0.5,training.epochs=1",
        "tsst@temperature=0.5,training.epochs=null",
    ]
    same = [variant, made("tsst", 4, temperature="0.5")]
    assert [(row.label, row.num_seeds) for row in method_rows(same)] == [("tsst@temperature=0.5", 2)]


def test_equal_runs_of_two_experiments_count_once(tmp_path: Path) -> None:
    data = write_pools(tmp_path / "desk")
    results = run_results([_limited(tmp_path / name, data, "tsst", 1, 100) for name in ("first", "second")])
    assert [row.num_seeds for row in method_rows(results)] == [1]
    results[1]["test"]["MAP"] += 0.01
    with pytest.raises(SettingError, match=r"first/.* and .*second/.* same settings and seed 1, but other metrics"):
        method_rows(results)


@pytest.mark.parametrize("labelled", [0.05, 0.2])
def test_of_runs_on_other_test_pools_nothing_is_the_best(tmp_path: Path, labelled: float) -> None:
    data = write_pools(tmp_path / "desk")
    found = [write_run(tmp_path, data, "bm25", 1), write_run(tmp_path, data, "tsst", 1, config={"labelled": labelled})]
    predictions = found[1].predictions("test")
    found[1].write_table("predictions/test.parquet", predictions.slice(0, predictions.num_rows // 2))
    found[1].write_json("result.json", {**found[1].result, "labelled": labelled})
    verdict = verdict_of(found)
    assert verdict.sentences == ()
    assert re.match(r"Not compared: bm25.* and tsst.* same pools: 30 are in one only", *verdict.warnings)
    console, stream = _console()
    print_runs(found, console)
    page = write_report(found, tmp_path / "report.html", "x").read_text()
    for said in (stream.getvalue(), page):
        assert "Not compared: bm25" in said
        assert "ranks best" not in said
    assert "bold" not in stream.getvalue()
    results = page[page.index('id="results"') : page.index('id="run"')]
    assert 'class="best"' not in results


def test_words_on_a_labelled_fraction_are_of_the_tests_in_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Holm's correction is over all pairs of the table, whatever the fractions are that sentences are about."""
    data, found = write_pools(tmp_path / "desk"), []
    for labelled in (0.05, 0.2):
        for method in ("tsst", "icast"):
            found.append(write_run(tmp_path / str(labelled), data, method, 1, config={"labelled": labelled}))
            found[-1].write_json("result.json", {**found[-1].result, "labelled": labelled})
    used: list[MethodTest] = []
    monkeypatch.setattr(verdicts, "verdict", lambda _, tests: used.extend(tests) or verdicts.Verdict(()))
    monkeypatch.setattr(paired, "holm", lambda p_values: [len(p_values) / 10] * len(p_values))
    verdict_of(found)
    assert {(one.first, one.second, one.p_holm) for one in used} == {("tsst", "icast", 0.6)}  # of six pairs
    assert len([one for one in used if one.metric == "MAP"]) == 2


def test_a_method_that_learns_from_no_labels_has_one_row_and_is_compared_with_each_fraction(tmp_path: Path) -> None:
    data, found = write_pools(tmp_path / "desk"), []
    for labelled in (0.05, 0.2):
        for method in ("bm25", "tsst"):
            found.append(write_run(tmp_path / str(labelled), data, method, 1, config={"labelled": labelled}))
            found[-1].write_json("result.json", {**found[-1].result, "labelled": labelled})
    rows = method_rows(run_results(found))
    assert [row.label for row in rows] == ["bm25", "tsst 5 %", "tsst 20 %"]
    assert rows[0].num_seeds == 1
    said = verdict_of(found).sentences
    assert [sentence.partition(":")[0] for sentence in said] == ["5 % labelled", "20 % labelled"]
    assert all("against bm25" in sentence for sentence in said)
    assert [row.label for row in method_rows(run_results(found[:3]))] == ["bm25", "tsst"]  # one fraction is learnt from


def test_runs_that_draw_their_own_labels_are_told_apart(tmp_path: Path) -> None:
    data, runs = write_pools(tmp_path / "desk"), []
    for name, config in (("a", {}), ("b", {"resample_labels": True})):
        runs.append(write_run(tmp_path / name, data, "tsst", 1, config=config))
    labels = [row.label for row in method_rows(run_results(runs))]
    assert labels == ["tsst@resample_labels=false", "tsst@resample_labels=true"]


def test_a_narrow_terminal_has_the_important_columns(runs: list[RunFolder]) -> None:
    console, stream = _console(80)
    print_runs(runs, console)
    text = stream.getvalue()
    head = next(line for line in text.splitlines() if "method" in line)
    assert all(name in head for name in ("R@1", "MAP", "ECE"))
    assert "…" not in text  # no value is cut
    assert max(map(len, text.splitlines())) <= 80


def _finished(stage: str, seconds: float = 2.5, reused: bool = False) -> StageFinished:
    return StageFinished(stage, stage, 0, "5f", Path("x"), seconds, reused)


EVENTS: list[Event] = [
    StageStarted("teacher", reused=False),
    *(Progress("teacher", done, 1800, "epoch 1, loss 0.432") for done in (600, 800)),
    Message("see [runs]/x"),
    _finished("teacher", 61.0),
]


def test_a_terminal_has_bars_and_one_line_for_each_finished_stage() -> None:
    stream = io.StringIO()
    with TerminalProgress(Console(file=stream, width=80, force_terminal=True, color_system=None)) as progress:
        for event in EVENTS:
            progress.show(event)
    for shown in ("teacher ━", "see [runs]/x", "✓ teacher  1 min 1 s"):
        assert shown in stream.getvalue()


def test_elsewhere_a_line_says_what_goes_on_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("icalib.reports.progress._SILENCE_S", 0.1)
    clock, stream = [0.0], io.StringIO()
    monkeypatch.setattr("icalib.reports.progress.time", SimpleNamespace(monotonic=lambda: clock[0]))
    with TerminalProgress(Console(file=stream, width=80)) as progress, progress.stage("Ray"):
        progress.show(Progress("Ray", 2, 2))  # its end comes later
        clock[0] = 12.3
        deadline = time.monotonic() + 10
        while "so far" not in stream.getvalue():
            assert time.monotonic() < deadline, stream.getvalue()
            time.sleep(0.01)
    assert stream.getvalue().endswith("Ray: 12.3 s so far\nRay: done in 12.3 s\n")


def test_a_stage_that_only_advances_breaks_its_silence_until_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the trials of a sweep, of which each may take hours."""
    monkeypatch.setattr("icalib.reports.progress._SILENCE_S", 0.1)
    clock, stream = [100.0], io.StringIO()
    monkeypatch.setattr("icalib.reports.progress.time", SimpleNamespace(monotonic=lambda: clock[0]))
    with TerminalProgress(Console(file=stream, width=80)) as progress:
        progress.show(Progress("trials", 1, 2, "1 running"))
        clock[0] = 150.0
        deadline = time.monotonic() + 10
        while "trials: 50.0 s so far" not in stream.getvalue():
            assert time.monotonic() < deadline, stream.getvalue()
            time.sleep(0.01)
        progress.show(Progress("trials", 2, 2))
        assert not progress._running


def test_quiet_shows_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    before = QUIET.set(True)
    with TerminalProgress() as progress:
        for event in EVENTS:
            progress.show(event)
    QUIET.reset(before)
    assert capsys.readouterr().err == ""


def test_what_texts_contain_can_not_control_the_terminal() -> None:
    stream = io.StringIO()
    console = PlainConsole(file=stream, width=80, force_terminal=True, color_system="truecolor")
    evil = "\x1b]0;owned\x07\x9b31m"
    console.print(text_table(["a", "b"], [(evil, Text(evil, style="bold"))], title=evil, caption=evil))
    assert "\\x1b]0;owned" in stream.getvalue()
    assert "\x1b[1m" in stream.getvalue()  # styles are sent
    assert not [part for part in ("\x1b]", "\x07", "\x9b") if part in stream.getvalue()]
