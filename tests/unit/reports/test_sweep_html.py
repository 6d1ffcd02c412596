from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from unit.reports.fake_sweeps import (
    HOSTILE,
    RULE,
    write_published,
    write_sampled,
    write_trials,
    write_two_objectives,
)
from unit.reports.pages import Page, read_page, visible

from icalib.core.errors import DamagedFileError
from icalib.reports.sweep_html import write_sweep_report
from icalib.reports.sweep_trials import ranked, sweep_trials
from icalib.sweeps.folder import SweepFolder

_SECTIONS = {
    "winner",
    "best",
    "lines",
    "front",
    "history",
    "parallel",
    "slices",
    "importances",
    "unfinished",
    "cost",
}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> SweepFolder:
    return write_published(tmp_path_factory.mktemp("published"))


def _page(folder: SweepFolder) -> Page:
    return read_page(write_sweep_report(folder))


def _sections(page: Page) -> set[str]:
    """Those that the page's navigation leads to."""
    return {address.removeprefix("#") for address in page.addresses if address.startswith("#")} & _SECTIONS


def _figures(page: Page) -> list[dict[str, Any]]:
    return [json.loads(script) for script in page.scripts if script.startswith('{"data"')]


def test_page_asks_nothing_of_the_network(published: SweepFolder) -> None:
    page = _page(published)
    assert {address for address in page.addresses if not address.startswith(("#", "data:"))} == {"best/config.yaml"}
    assert (published.path / "best/config.yaml").is_file()


def test_what_was_asked_and_the_winner(published: SweepFolder) -> None:
    text = visible(_page(published))
    settings, best = published.settings, published.best()
    assert best is not None
    for words in (settings.command, "regime.num_rounds=2", "train 400", "18 complete", "method: icast"):
        assert words in text
    assert f"Winner: trial {best.trial}" in text
    assert "computed once, at the end" in text
    validation, test = best.validation["F1"], best.test["F1"]
    assert f"F1{validation[0]:.3f} ± {validation[1]:.3f}{test[0]:.3f} ± {test[1]:.3f}" in text.replace("F1 ", "F1")


def test_one_setting_at_a_time_has_lines_and_no_views_of_settings_together(published: SweepFolder) -> None:
    page = _page(published)
    assert _sections(page) == {"winner", "best", "lines", "history", "cost"}


def test_lines_have_means_deviations_and_selected_intents(published: SweepFolder) -> None:
    titles = {"gain_threshold": f"{RULE}.gain_threshold", "confidence_threshold": f"{RULE}.confidence_threshold"}
    trials = sweep_trials(published)
    for label, name in titles.items():
        (figure,) = [
            figure
            for figure in _figures(_page(published))
            if figure["layout"].get("xaxis", {}).get("title", {}).get("text") == label
        ]
        bars, line = figure["data"]
        own = [trial for trial in trials if name in trial.params]
        assert line["y"] == pytest.approx([trial.mean("F1") for trial in own])
        assert line["error_y"]["array"] == pytest.approx([trial.deviation("F1") for trial in own])
        assert bars["y"] == pytest.approx([trial.mean_of("num_selected_intents") for trial in own])
        assert line["x"] == bars["x"] == [f"{trial.params[name]:g}" for trial in own]


def test_ten_best_stand_in_order(published: SweepFolder) -> None:
    text = visible(_page(published))
    expected = [trial for trial in ranked(sweep_trials(published), {"F1": "maximize"})[:10]]
    rows = text[text.index("The best 10 of 18") : text.index("How to read: trials that differ")]
    places = [rows.index(f"{trial.mean('F1'):.3f}±{trial.deviation('F1'):.3f}") for trial in expected]
    assert places == sorted(places)


def test_calibration_stands_beside_what_was_tuned(published: SweepFolder) -> None:
    text = visible(_page(published))
    for trial in ranked(sweep_trials(published), {"F1": "maximize"})[:10]:
        cells = [f"{trial.mean(metric):.3f}±{trial.deviation(metric):.3f}" for metric in ("F1", "R@1", "ECE")]
        assert "".join(cells) in "".join(text.split())


def test_saved_time_is_shown(published: SweepFolder) -> None:
    text = visible(_page(published))
    trials = sweep_trials(published)
    stages = [stage for trial in trials for stage in trial.stages]
    saved = sum(stage["seconds"] for stage in stages if stage["reused"])
    spent = sum(stage["seconds"] for stage in stages if not stage["reused"])  # waiting for others is no saving
    assert f"{sum(stage['reused'] for stage in stages)} existing stages were reused" in text
    assert f"about {(spent + saved) / spent:.1f} times as long" in text


def test_sampled_sweep_shows_settings_together_and_failures_apart(tmp_path: Path) -> None:
    page = _page(write_sampled(tmp_path))
    assert _sections(page) == _SECTIONS - {"lines", "front"}
    text = visible(page)
    section = text[text.index("Failed and pruned trials", text.index("functional ANOVA")) :]
    assert section.count(HOSTILE) == 2
    assert section[: section.index("Cost")].count("pruned") == 3  # the heading and two trials
    assert "26 complete, 2 pruned, 2 failed, 1 running" in text
    assert "No stage was shared." in text


def test_text_from_a_sweep_is_escaped(tmp_path: Path) -> None:
    folder = write_sampled(tmp_path)
    assert "<script>alert" not in write_sweep_report(folder).read_text(encoding="utf-8")


def test_history_keeps_the_best_so_far(tmp_path: Path) -> None:
    values = (0.5, 0.4, 0.7, 0.6)
    folder = write_trials(tmp_path, [({"a": place, "b": place}, value) for place, value in enumerate(values)])
    (best,) = [
        trace for figure in _figures(_page(folder)) for trace in figure["data"] if trace.get("name") == "best so far"
    ]
    assert best["y"] == [0.5, 0.5, 0.7, 0.7]


def test_a_winner_without_settings_is_a_typed_error(tmp_path: Path) -> None:
    folder = write_published(tmp_path)
    folder.best_config_path.unlink()
    with pytest.raises(DamagedFileError, match=r"best/config.yaml is missing"):
        write_sweep_report(folder)


def test_two_objectives_have_a_front(tmp_path: Path) -> None:
    folder = write_two_objectives(tmp_path)
    page = _page(folder)
    assert "front" in _sections(page)
    (front,) = [trace for figure in _figures(page) for trace in figure["data"] if trace.get("name") == "Pareto front"]
    assert front["x"] == sorted(front["x"])
    assert front["y"] == sorted(front["y"])  # better in one metric is worse in the other
    assert visible(page).count("◆") >= 2


def test_a_grid_has_a_line_for_each_value_of_the_other_setting(tmp_path: Path) -> None:
    points = [({"x.rate": a, "x.scale": b}, 0.5 + a + b) for a in (1e-4, 1e-3, 1e-2) for b in (1, 2, 3)]
    page = _page(write_trials(tmp_path, points))
    assert {"lines", "parallel", "slices"} <= _sections(page)
    lines = [figure for figure in _figures(page) if len(figure["data"]) == 3]
    assert [trace["name"] for trace in lines[0]["data"]] == ["scale=1", "scale=2", "scale=3"]


@pytest.mark.parametrize("num_trials", [0, 1])
def test_a_sweep_that_has_just_started(tmp_path: Path, num_trials: int) -> None:
    page = _page(write_trials(tmp_path, [({"a": 1}, 0.5)] * num_trials))
    assert _sections(page) == ({"best", "cost"} if num_trials else set())
    assert ("none has started" in visible(page)) == (num_trials == 0)


def test_a_trial_that_failed_before_it_had_settings(tmp_path: Path) -> None:
    folder = write_trials(tmp_path, [({"a": 1}, 0.5), ({"a": 2}, 0.6)])
    rows = folder.trials().to_pylist()
    rows[0] |= {"state": "failed", "params": [], "metrics": None, "stages": None, "error": "no such pools"}
    folder.write_trials(rows)
    assert "no such pools" in visible(_page(folder))
