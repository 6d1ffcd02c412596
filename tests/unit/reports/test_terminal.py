from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from icalib.core.display import Display, showing
from icalib.core.events import Message, Progress, StageFinished, StageStarted
from icalib.core.run_folder import RunFolder
from icalib.reports.comparison import COLUMNS, best_labels, method_rows, shown_metrics
from icalib.reports.progress import JsonLines, TerminalProgress
from icalib.reports.terminal import (
    print_comparison,
    print_shifts,
)


def _result(method: str, seed: int, labelled: float = 0.05, **test: float | None) -> dict[str, Any]:
    return {
        "run": f"runs/{method}",
        "method": method,
        "data": "pools/desk",
        "labelled": labelled,
        "seed": seed,
        "test": test,
        "validation": test,
        "seconds": {"teacher": 1.0, "total": 2.0},
    }


def _console(width: int = 160, terminal: bool = False) -> tuple[Console, io.StringIO]:
    stream = io.StringIO()
    return Console(file=stream, width=width, force_terminal=terminal, color_system=None), stream


def test_rows_hold_mean_and_sample_deviation() -> None:
    (row,) = method_rows([_result("a", 2, MAP=0.5), _result("a", 1, MAP=0.7)])
    assert row.mean("MAP") == pytest.approx(0.6)
    assert row.deviation("MAP") == pytest.approx(0.141421, abs=1e-6)
    assert [result["seed"] for result in row.results] == [1, 2]
    assert row.mean("ECE") is None


def test_best_follows_the_metrics_direction_and_printed_digits() -> None:
    rows = method_rows([_result("a", 1, MAP=0.70001, ECE=0.1), _result("b", 1, MAP=0.70004, ECE=0.05)])
    assert best_labels(rows, "MAP") == {"a", "b"}
    assert best_labels(rows, "ECE") == {"b"}
    assert best_labels(rows[:1], "ECE") == set()


def test_labelled_parts_are_rows_of_their_own() -> None:
    results = [_result("a", 1, labelled=0.01, MAP=0.4), _result("a", 1, labelled=0.05, MAP=0.5)]
    assert [row.label for row in method_rows(results)] == ["a 1.00%", "a 5.00%"]


def test_a_recall_that_is_1_for_every_ranker_is_no_column() -> None:
    results = [_result("a", 1, **{"R@1": 0.4, "R@5": 1.0}), _result("b", 1, **{"R@1": 0.6, "R@5": 1.0})]
    assert "R@5" not in shown_metrics(results)
    assert "R@5" in shown_metrics([*results, _result("c", 1, **{"R@1": 0.6, "R@5": 0.9})])


def _long_names(runs: list[RunFolder]) -> list[dict[str, Any]]:
    names = {"bm25": "bm25", "tsst": "icast-no-gain-no-calibration", "icast": "pg-drr@head.kernel=matern"}
    return [{**run.result, "method": names[run.result["method"]]} for run in runs]


@pytest.mark.parametrize("width", [80, 200])
def test_no_value_is_cut_at_any_usual_width(runs: list[RunFolder], width: int) -> None:
    console, stream = _console(width)
    results = _long_names(runs)
    print_comparison(results, console)
    text = stream.getvalue()
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    shown = ("R@1", "MAP", "ECE") if width == 80 else ("R@1", "MAP", "ECE", "NLL", "F1", "Brier")
    for row in method_rows(results):
        assert row.label in text
        for metric in shown:
            assert f"{row.mean(metric):.3f}" in text
    assert ("--wide also shows" in " ".join(text.split())) == (width < 200)


def test_wide_shows_every_column(runs: list[RunFolder]) -> None:
    console, stream = _console(80)
    with showing(Display(wide=True)):
        print_comparison(_long_names(runs), console)
    lines = stream.getvalue().splitlines()
    assert any(all(name in line for name in COLUMNS) for line in lines)
    assert "--wide" not in stream.getvalue()


def _shift(method: str, seed: int, limit: int | None = None, **test: float) -> dict[str, Any]:
    return {
        **_result(method, seed, **test),
        "data": "pools/counter",
        "trained_on": "pools/desk",
        "digest": "5f",
        "limit": limit,
    }


def test_shift_tables_hold_what_can_be_compared() -> None:
    console, stream = _console()
    print_shifts([_shift("a", 1, MAP=0.4), _shift("a", 2, MAP=0.6), _shift("b", 1, limit=50, MAP=0.7)], console)
    text = stream.getvalue()
    assert text.count("trained on desk, tested on counter") == 2
    whole, limited = text.split("(at most 50 pools)")
    assert "0.500" in whole
    assert "±.141" in whole
    assert "0.700" in limited


def _finished(stage: str, seconds: float = 2.5, reused: bool = False) -> StageFinished:
    return StageFinished(stage, stage, 0, "5f", Path("x"), seconds, reused)


def test_log_lines_are_rate_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("icalib.reports.progress.time.monotonic", lambda: now)
    console, stream = _console()
    with TerminalProgress(console) as progress:
        progress.show(StageStarted("teacher", reused=False))
        for done in (*range(10), *[8] * 10):
            now += 2.0
            progress.show(Progress("teacher", done, 10))
        progress.show(_finished("teacher", 120.0))
        progress.show(_finished("scores 1", reused=True))
        progress.show(Message("see [runs]/x"))
    first, *lines = stream.getvalue().splitlines()
    assert first.startswith("teacher: trains")
    assert lines == [
        "teacher: 2/10",
        "teacher: 5/10",
        "teacher: 8/10",
        "teacher: done in 2 min 0 s",
        "scores 1: reused",
        "see [runs]/x",
    ]


def test_bars_show_totals_and_the_time_left_and_end_with_one_line_a_stage() -> None:
    now, stream = 100.0, io.StringIO()
    console = Console(file=stream, width=80, force_terminal=True, color_system=None, get_time=lambda: now)
    with TerminalProgress(console) as progress:
        progress.show(StageStarted("teacher", reused=False))
        for done in (600, 700, 800):
            now += 30.0
            progress.show(Progress("teacher", done, 1800, "epoch 1, loss 0.432"))
        progress.show(Progress("scores 1", 1, None))
        progress._bars.refresh()  # pyright: ignore[reportPrivateUsage]
        progress.show(_finished("teacher", 61.0))
        progress.show(_finished("scores 1", reused=True))
    text = stream.getvalue()
    for shown in ("800/1,800", " left", "trains on the", "✓ teacher  1 min 1 s", "✓ scores 1  reused"):
        assert shown in text
    assert "/?" not in text


def test_quiet_shows_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    with showing(Display(quiet=True)), TerminalProgress() as progress:
        progress.show(Message("run 1 of 2"))
        progress.show(_finished("teacher"))
    assert capsys.readouterr().err == ""


def test_json_lines_are_one_object_an_event() -> None:
    stream = io.StringIO()
    with JsonLines(stream) as progress:
        progress.show(Message("run 1 of 2"))
        progress.show(StageStarted("teacher", reused=False))
        for done in range(3):
            progress.show(Progress("teacher", done, 3))
        progress.show(_finished("teacher"))
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["Message", "StageStarted", "Progress", "StageFinished"]
    assert lines[-1]["seconds"] == 2.5
    assert all("time" in line for line in lines)
