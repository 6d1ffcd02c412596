"""What a sweep's page and tables show."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState
from rich.console import Console
from unit.reports.fake_sweeps import (
    HOSTILE,
    RULE,
    Made,
    write_published,
    write_sampled,
    write_sweep,
)
from unit.reports.pages import Page, read_page, visible

from icalib.core.errors import DamagedFileError
from icalib.reports.sweep_figures import study_of
from icalib.reports.sweep_views import print_dry, print_sweep, write_views
from icalib.sweeps.folder import SweepFolder
from icalib.sweeps.trials import ranked, sweep_trials

GAIN = f"{RULE}.gain_threshold"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> SweepFolder:
    folder = write_published(tmp_path_factory.mktemp("published"))
    write_views(folder)
    return folder


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> SweepFolder:
    folder = write_sampled(tmp_path_factory.mktemp("sampled"))
    write_views(folder)
    return folder


def _page(folder: SweepFolder) -> Page:
    return read_page(folder.path / "report.html")


def _figures(folder: SweepFolder) -> list[dict[str, Any]]:
    return [json.loads(script) for script in _page(folder).scripts if script.startswith('{"data"')]


def _outline(folder: SweepFolder) -> list[str]:
    """The page's headings, and what its figures are made of."""
    text = (folder.path / "report.html").read_text(encoding="utf-8")
    kinds = iter(sorted({trace["type"] for trace in figure["data"]}) for figure in _figures(folder))
    return [
        f"{'#' * int(level)} {title}" + (f": {', '.join(next(kinds))}" if level == "3" else "")
        for level, title in re.findall(r"<h([123])[^>]*>(.*?)</h", text)
    ]


def _printed(folder: SweepFolder, width: int = 160) -> str:
    stream = io.StringIO()
    print_sweep(folder, Console(file=stream, width=width, color_system=None))
    return stream.getvalue()


def _rows(folder: SweepFolder) -> list[dict[str, str]]:
    with (folder.path / "trials.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_page_of_a_sampled_sweep(sampled: SweepFolder) -> None:
    assert _outline(sampled) == [
        "# Sweep of made on desk", "## What was asked", "## Winner: trial 1", "## Best trials", "## Pictures",
        "### History of R@1: scatter", "### Importance for R@1: bar",
        "### R@1 by the two most important settings: scatter", "### R@1 by each setting: scatter",
        "### R@1 in parallel coordinates: scatter", "## Failed and pruned trials", "## Cost",
    ]  # fmt: skip
    page, best = _page(sampled), sampled.best()
    assert best is not None
    assert {address for address in page.addresses if not address.startswith(("#", "data:"))} == {best.config}
    text = visible(page)
    for words in (sampled.settings.command, "12 complete, 1 failed, 1 pruned, 1 running", "method: icast"):
        assert words in text
    assert text.count(HOSTILE) == 1
    assert "<script>alert" not in (sampled.path / "report.html").read_text(encoding="utf-8")
    assert all(trace["type"] in ("scatter", "bar") for figure in _figures(sampled) for trace in figure["data"])


def test_one_setting_at_a_time_has_curves_with_deviations(published: SweepFolder) -> None:
    assert [line for line in _outline(published) if line.startswith("###")] == [
        "### History of F1: scatter",
        "### F1 by gain_threshold: scatter",
        "### F1 by positive_threshold: scatter",
    ]
    (curve,) = _figures(published)[2]["data"]
    own = [sweep_trials(published)[number] for number in (4, 5, 3)]
    assert curve["x"] == [0.7, 0.8, 0.9]
    assert curve["y"] == [trial.mean("F1") for trial in own]
    assert curve["error_y"]["array"] == [trial.deviation("F1") for trial in own]
    assert "10 were there already" in visible(_page(published))


def test_two_objectives_have_a_front_which_comes_first(tmp_path: Path) -> None:
    values = [(0.5, 0.05), (0.7, 0.2), (0.6, 0.1), (0.55, 0.15)]
    made = [Made({"loss.gamma": float(n)}, [{"R@1": r, "ECE": e}] * 2) for n, (r, e) in enumerate(values)]
    folder = write_sweep(tmp_path, made, {"R@1": "maximize", "ECE": "minimize"})
    write_views(folder)
    titles = [line for line in _outline(folder) if line.startswith("###")]
    assert titles[:2] == ["### R@1 and ECE: scatter", "### History of R@1: scatter"]
    printed = _printed(folder, 80)
    assert "…" not in printed  # no value is cut
    assert re.findall(r"^ +(\d+) ", printed, flags=re.MULTILINE) == ["1", "2", "0", "3"]


@pytest.mark.parametrize("num_trials", [0, 1])
def test_a_sweep_that_has_just_started(tmp_path: Path, num_trials: int) -> None:
    folder = write_sweep(tmp_path, [Made({"a": 1}, [{"R@1": 0.5}])] * num_trials)
    write_views(folder)
    assert _outline(folder)[2:] == ["## Best trials", "## Cost"][-1 - num_trials :]
    assert ("no trial has started" in visible(_page(folder))) == (num_trials == 0)
    assert "Winner" not in _printed(folder)
    assert len(_rows(folder)) == num_trials


def test_a_winner_without_settings_is_a_typed_error(tmp_path: Path) -> None:
    folder = write_published(tmp_path)
    folder.best_config_path.unlink()
    with pytest.raises(DamagedFileError, match=r"best/config.yaml is missing"):
        write_views(folder)


def test_the_table_has_a_row_for_each_trial_and_seed(published: SweepFolder, sampled: SweepFolder) -> None:
    rows = _rows(published)
    assert [(row["trial"], row["seed"]) for row in rows[:3]] == [("0", "1"), ("0", "2"), ("1", "1")]
    run = published.run_folder(1, 1)
    assert float(rows[2]["validation/F1"]) == run.result["validation"]["F1"]
    assert (rows[2][GAIN], rows[2]["run"]) == ("0.02", run.name)
    failed = _rows(sampled)[4]
    assert (failed["state"], failed["error"], failed["validation/R@1"]) == ("failed", HOSTILE, "")


def test_a_dry_sweep_shows_the_trials_that_select_most_right_pools(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path, [])
    row = {"num_pools_scored": 1000, "num_pseudo_pairs": 70, "num_selected_intents": 5, "base_accuracy": 0.5}
    rows = [
        {**row, "trial": n, "seed": seed, "num_pseudo_pools": 100 * seed, "pseudo_accuracy": n / 100}
        | {"params": [{"name": GAIN, "value": json.dumps(n / 100)}]}
        for n in range(100)
        for seed in (1, 2)
    ]
    folder.write_dry(rows)
    stream = io.StringIO()
    print_dry(folder, Console(file=stream, width=160, color_system=None))
    lines = [line.split() for line in stream.getvalue().splitlines()]
    assert [int(words[0]) for words in lines if words and words[0].isdigit()] == list(range(60, 100))
    assert ["99", "150", "1,000", "99.0", "%", "50.0", "%", "70", "–", "5", "gain_threshold=0.99"] in lines


def test_pictures_keep_numbers_and_have_settings_on_their_scales(tmp_path: Path) -> None:
    points: list[dict[str, Any]] = [
        {
            "head.rate": 10.0**-place,
            "head.layers": [place],
            "head.gate": place == 2,
            "loss.gate": 0.1 * place,
            "same": 1,
        }
        for place in range(1, 4)
    ]
    made = [Made(point, [{"R@1": 0.5}]) for point in points]
    made.insert(1, Made(points[0], [], TrialState.PRUNED))
    trials = ranked(sweep_trials(write_sweep(tmp_path, made)), {"R@1": "maximize"})
    shown = study_of(trials, {"R@1": "maximize"}).trials
    assert [trial.number for trial in shown if trial.state == TrialState.COMPLETE] == [0, 2, 3]
    assert shown[2].params == {"rate": 0.01, "layers": "[2]", "head.gate": "true", "loss.gate": 0.2}
    assert shown[2].distributions["rate"] == FloatDistribution(0.001, 0.1, log=True)
