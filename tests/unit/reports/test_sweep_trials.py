from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.reports.fake_sweeps import RULE, write_published, write_sampled, write_trials, write_two_objectives

from icalib.metrics.metric import Direction
from icalib.reports.sweep_trials import (
    Trial,
    lines_by_param,
    pareto_front,
    ranked,
    short_names,
    sweep_trials,
    varies_one_at_a_time,
)

_METRICS: dict[str, Direction] = {"R@1": "maximize", "ECE": "minimize"}


def _trial(number: int, recall: float, ece: float) -> Trial:
    values = (("R@1", recall), ("ECE", ece))
    metrics = [{"split": "validation", "name": name, "value": value} for name, value in values]
    return Trial(number, "complete", {"x": number}, ({"metrics": metrics},))


def test_seeds_are_put_together(tmp_path: Path) -> None:
    folder = write_published(tmp_path)
    trial = sweep_trials(folder)[3]
    rows = [row for row in folder.trials().to_pylist() if row["trial"] == 3]
    values = [entry["value"] for row in rows for entry in row["metrics"] if entry["name"] == "F1"]
    assert trial.mean("F1") == pytest.approx(np.mean(values))
    assert trial.deviation("F1") == pytest.approx(np.std(values, ddof=1))
    assert trial.seconds == pytest.approx(sum(row["seconds"] for row in rows))
    assert trial.state == "complete"


def test_test_figures_are_no_validation_figures(tmp_path: Path) -> None:
    folder = write_trials(tmp_path, [({"a": 1}, 0.5)])
    rows = folder.trials().to_pylist()
    rows[0]["metrics"].append({"split": "test", "name": "R@1", "value": 0.9})
    folder.write_trials(rows)
    assert sweep_trials(folder)[0].mean("R@1") == 0.5


def test_a_trial_is_complete_when_all_seeds_are(tmp_path: Path) -> None:
    folder = write_published(tmp_path)
    rows = folder.trials().to_pylist()
    rows = [row for row in rows if (row["trial"], row["seed"]) != (0, 3)]
    for row in rows:
        if (row["trial"], row["seed"]) == (1, 2):
            row["state"] = "failed"
    folder.write_trials(rows)
    assert [trial.state for trial in sweep_trials(folder)][:3] == ["running", "failed", "complete"]
    assert {trial.number for trial in ranked(sweep_trials(folder), {"F1": "maximize"})}.isdisjoint({0, 1})


def test_the_best_come_first_in_the_metrics_direction(tmp_path: Path) -> None:
    points = [({"a": place}, value) for place, value in enumerate((0.2, 0.6, 0.6, 0.4))]
    trials = sweep_trials(write_trials(tmp_path, points))
    assert [trial.number for trial in ranked(trials, {"R@1": "maximize"})] == [1, 2, 3, 0]
    assert [trial.number for trial in ranked(trials, {"R@1": "minimize"})] == [0, 3, 1, 2]


def test_front_and_order_with_two_metrics() -> None:
    trials = [_trial(0, 0.9, 0.3), _trial(1, 0.8, 0.1), _trial(2, 0.85, 0.35), _trial(3, 0.8, 0.2), _trial(4, 0.8, 0.1)]
    assert [trial.number for trial in pareto_front(trials, _METRICS)] == [0, 1, 4]
    assert [trial.number for trial in ranked(trials, _METRICS)] == [0, 1, 4, 2, 3]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12))
def test_no_trial_is_better_than_one_on_the_front_and_all_others_have_a_better_one(
    points: list[tuple[int, int]],
) -> None:
    trials = [_trial(number, *point) for number, point in enumerate(points)]
    front = {trial.number for trial in pareto_front(trials, _METRICS)}
    for number, (recall, ece) in enumerate(points):
        is_beaten = any(r >= recall and e <= ece and (r, e) != (recall, ece) for r, e in points)
        assert (number in front) != is_beaten


def test_published_protocol_gives_one_line_a_threshold(tmp_path: Path) -> None:
    trials = sweep_trials(write_published(tmp_path))
    lines = lines_by_param(trials)
    assert {name: len(found) for name, found in lines.items()} == dict.fromkeys(lines, 1)
    (line,) = lines[f"{RULE}.gain_threshold"]
    assert line.values == [0.0, 0.01, 0.02, 0.03, 0.04]
    assert varies_one_at_a_time(trials, lines)


def test_lines_cross_where_every_trial_names_all_settings(tmp_path: Path) -> None:
    fixed = {"a": 2, "b": 5}
    points = [fixed, *({**fixed, "a": a} for a in (1, 3)), *({**fixed, "b": b} for b in (7, 6))]
    trials = sweep_trials(write_trials(tmp_path, [(point, 0.5) for point in points]))
    lines = lines_by_param(trials)
    assert [[line.values for line in lines[name]] for name in ("a", "b")] == [[[1, 2, 3]], [[5, 6, 7]]]
    assert varies_one_at_a_time(trials, lines)


def test_a_grid_gives_a_line_for_each_value_of_the_other_setting(tmp_path: Path) -> None:
    points: list[dict[str, Any]] = [{"a": a, "b": b} for a in (1, 2, 3) for b in ("x", "y")]
    trials = sweep_trials(write_trials(tmp_path, [(point, 0.5) for point in points]))
    lines = lines_by_param(trials)
    assert [(line.values, line.others) for line in lines["a"]] == [([1, 2, 3], {"b": "x"}), ([1, 2, 3], {"b": "y"})]
    assert "b" not in lines  # two values are no course
    assert not varies_one_at_a_time(trials, lines)


def test_samplers_give_no_lines(tmp_path: Path) -> None:
    for folder in (write_sampled(tmp_path), write_two_objectives(tmp_path)):
        assert lines_by_param(sweep_trials(folder)) == {}


@given(st.lists(st.from_regex(r"[ab](\.[ab]){0,3}", fullmatch=True), unique=True, max_size=8))
def test_short_names_tell_apart_and_are_ends(names: list[str]) -> None:
    short = short_names(names)
    assert len(set(short.values())) == len(names)
    assert all(name == label or name.endswith(f".{label}") for name, label in short.items())
