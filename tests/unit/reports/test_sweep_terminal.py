from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from unit.reports.fake_sweeps import HOSTILE, write_published, write_sampled, write_trials, write_two_objectives

from icalib.reports.sweep_terminal import SweepProgress, print_dry, print_sweep
from icalib.reports.sweep_trials import Trial, ranked, sweep_trials
from icalib.sweeps.folder import encoded_params

GAIN = "regime.rule.gain_threshold"


def _console(width: int = 160, terminal: bool = False) -> tuple[Console, io.StringIO]:
    stream = io.StringIO()
    return Console(file=stream, width=width, force_terminal=terminal, color_system=None), stream


def _trial(number: int, value: float | None, seconds: float, error: str | None = None, metric: str = "F1") -> Trial:
    metrics = [] if value is None else [{"split": "validation", "name": metric, "value": value}]
    row = {"metrics": metrics, "seconds": seconds, "error": error, "stages": []}
    return Trial(number, "failed" if error else "complete", {GAIN: number / 100}, (row,))


def test_ten_best_stand_in_order_and_the_winner_is_marked(tmp_path: Path) -> None:
    folder = write_published(tmp_path)
    console, stream = _console()
    print_sweep(folder, console)
    table, winner = stream.getvalue().split("Winner: trial ")
    numbers = [int(line.split()[0]) for line in table.splitlines() if line.strip()[:1].isdigit()]
    assert numbers == [trial.number for trial in ranked(sweep_trials(folder), {"F1": "maximize"})][:10]
    assert int(winner.split()[0]) == numbers[0]
    assert "test was computed once" in " ".join(winner.split())
    assert f"icalib run {folder.path}/best/config.yaml --runs {folder.path.parents[1]}\n" in winner


def test_calibration_stands_beside_what_was_tuned(tmp_path: Path) -> None:
    folder = write_published(tmp_path)
    console, stream = _console()
    print_sweep(folder, console)
    best = ranked(sweep_trials(folder), {"F1": "maximize"})[0]
    row = next(line for line in stream.getvalue().splitlines() if line.split()[:1] == [str(best.number)])
    cells = [f"{best.deviation('F1'):.3f}", f"{best.mean('R@1'):.3f}", f"{best.mean('ECE'):.3f}"]
    assert " ".join(cells) in " ".join(row.split())


@pytest.mark.parametrize("width", [80, 110, 200])
def test_no_value_is_cut_at_any_usual_width(tmp_path: Path, width: int) -> None:
    folder = write_two_objectives(tmp_path)
    console, stream = _console(width)
    print_sweep(folder, console)
    assert "…" not in stream.getvalue()
    best = ranked(sweep_trials(folder), folder.settings.metrics)[0]
    for metric in ("R@1", "ECE"):
        assert f"{best.mean(metric):.3f} ± {best.deviation(metric):.3f}" in stream.getvalue()


def test_failures_are_shown_with_their_error(tmp_path: Path) -> None:
    console, stream = _console()
    print_sweep(write_sampled(tmp_path), console)
    lines = [line for line in stream.getvalue().splitlines() if HOSTILE in line]
    assert [line.split(" (")[0] for line in lines] == ["trial 4 failed", "trial 17 failed"]
    assert "26 complete, 2 failed, 2 pruned, 1 running" in stream.getvalue()


def test_unfinished_sweep_has_no_winner(tmp_path: Path) -> None:
    console, stream = _console()
    print_sweep(write_trials(tmp_path, []), console)
    assert "no trial has started" in " ".join(stream.getvalue().split())
    assert "Winner" not in stream.getvalue()


def test_dry_sweep_shows_means_over_the_seeds(tmp_path: Path) -> None:
    folder = write_trials(tmp_path, [])
    row = {"trial": 0, "params": encoded_params({GAIN: 0.03}), "num_pools_scored": 1000, "num_pseudo_pairs": 70}
    row |= {"num_selected_intents": 5, "pair_accuracy": None, "base_accuracy": 0.5}
    seeds = ({"seed": 1, "num_pseudo_pools": 10, "pseudo_accuracy": 0.7}, {"seed": 2, "num_pseudo_pools": 20})
    folder.write_dry([{**row, **seed} for seed in seeds])
    console, stream = _console()
    print_dry(folder, console)
    lines = [line.split() for line in stream.getvalue().splitlines()]
    assert ["0", "gain_threshold=0.03", "15", "1,000", "70.0", "%", "50.0", "%", "70", "–", "5"] in lines


def test_a_long_dry_sweep_shows_the_trials_that_select_most_right_pools(tmp_path: Path) -> None:
    folder = write_trials(tmp_path, [])
    row = {"seed": 1, "num_pools_scored": 1000, "num_pseudo_pairs": 70, "num_selected_intents": 5}
    row |= {"pair_accuracy": 0.5, "base_accuracy": 0.5, "num_pseudo_pools": 100}
    folder.write_dry(
        [{**row, "trial": n, "params": encoded_params({GAIN: n / 100}), "pseudo_accuracy": n / 100} for n in range(100)]
    )
    console, stream = _console()
    print_dry(folder, console)
    trials = [
        int(words[0]) for line in stream.getvalue().splitlines() if (words := line.split()) and words[0].isdigit()
    ]
    assert trials == list(range(60, 100))
    assert "40 trials that select the most right pools, of 100" in " ".join(stream.getvalue().split())


def test_elsewhere_every_trial_that_ended_is_one_line() -> None:
    console, stream = _console()
    with SweepProgress({"F1": "maximize"}, console) as progress:
        progress.sweep_started([], 3)
        for number in range(3):
            progress.trial_started(number, {GAIN: number / 100})
        progress.trial_finished(_trial(1, 0.5, 61.0))
        progress.trial_finished(_trial(0, None, 2.0, "out of [memory]"))
        progress.trial_finished(_trial(2, 0.4, 3.0))
    assert stream.getvalue().splitlines() == [
        "trial 1 complete in 1 min 1 s: F1 0.500; gain_threshold=0.01 (1/3; best so far: trial 1)",
        "trial 0 failed (gain_threshold=0): out of [memory]",
        "trial 2 complete in 3.0 s: F1 0.400; gain_threshold=0.02 (3/3; best so far: trial 1)",
    ]


def test_a_workers_traceback_is_told_by_what_was_raised() -> None:
    console, stream = _console()
    error = "training failed in t: [Rank 0]\nTraceback:\n  File x\nValueError: 3 is no 4\n. The same command goes on."
    with SweepProgress({"F1": "maximize"}, console) as progress:
        progress.trial_finished(_trial(7, None, 2.0, error))
    told = "training failed in t: [Rank 0] … ValueError: 3 is no 4 (the report has all of it)"
    assert stream.getvalue() == f"trial 7 failed (gain_threshold=0.07): {told}\n"


def test_trials_of_an_earlier_call_count_and_may_be_the_best() -> None:
    console, stream = _console()
    with SweepProgress({"F1": "maximize"}, console) as progress:
        progress.sweep_started([_trial(0, 0.9, 1.0), _trial(1, None, 1.0, "out of memory")], 3)
        progress.trial_finished(_trial(1, 0.5, 1.0))
    assert stream.getvalue().endswith("(2/3; best so far: trial 0)\n")


def test_a_trial_whose_runs_were_over_untold_counts_once() -> None:
    console, stream = _console()
    with SweepProgress({"F1": "maximize"}, console) as progress:
        progress.sweep_started([_trial(0, 0.9, 1.0)], 1)
        progress.trial_started(0, {GAIN: 0.0})
        progress.trial_finished(_trial(0, 0.9, 1.0))
    assert stream.getvalue().endswith("(1/1; best so far: trial 0)\n")


def test_the_best_follows_the_direction() -> None:
    console, stream = _console()
    with SweepProgress({"ECE": "minimize"}, console=console) as progress:
        for number, value in enumerate((0.2, 0.1, 0.3)):
            progress.trial_started(number, {})
            progress.trial_finished(_trial(number, value, 1.0, metric="ECE"))
    assert [line.rpartition("trial ")[2] for line in stream.getvalue().splitlines()] == ["0)", "1)", "1)"]


def test_table_holds_running_and_ended_trials_and_goes_at_the_end() -> None:
    console, stream = _console(terminal=True)
    with SweepProgress({"F1": "maximize"}, console) as progress:
        progress.sweep_started([], 20)
        for number in range(12):
            progress.trial_started(number, {GAIN: number / 100})
            if number < 11:
                progress.trial_finished(_trial(number, 0.9 - number / 100, 1.0))
        before = len(stream.getvalue())
        console.print("still there")
        text = stream.getvalue()[before:]
    assert "11 complete, 1 running, 20 in total" in text
    rows = [line.split()[:2] for line in text.splitlines() if "gain_threshold" in line]
    assert rows == [["0", "complete"], *([str(n), "complete"] for n in range(3, 11)), ["11", "running"]]
    assert stream.getvalue().endswith("\x1b[2K")
