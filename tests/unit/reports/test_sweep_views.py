"""What a sweep's page and tables show, and what is said of trials that predict the same and of the best."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from optuna.trial import TrialState
from rich.console import Console
from unit.reports.fake_sweeps import HOSTILE, Made, finish, write_sweep
from unit.reports.pages import read_page, visible

from icalib.core.errors import DamagedFileError
from icalib.metrics.metric import Metric
from icalib.metrics.pairs import FloatArray, PoolScores
from icalib.metrics.significance import PairedTest
from icalib.reports import paired_tests, sweep_views
from icalib.reports.sweep_views import SweepSummary, print_dry, print_sweep, write_views
from icalib.sweeps.folder import SweepFolder
from icalib.sweeps.trials import sweep_trials

GAIN = "regime.rule.gain_threshold"


def _figures(folder: SweepFolder) -> list[dict[str, Any]]:
    page = read_page(folder.path / "report.html")
    return [json.loads(script) for script in page.scripts if script.startswith('{"data"')]


def _printed(folder: SweepFolder) -> str:
    stream = io.StringIO()
    print_sweep(folder, Console(file=stream, width=160, color_system=None))
    return stream.getvalue()


def _rows(folder: SweepFolder) -> list[dict[str, str]]:
    with (folder.path / "trials.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_sampled_sweep(tmp_path: Path) -> None:
    made = [Made({"head.kernel": n % 2, "learning_rate": 10.0**-n}, [{"R@1": n / 20}]) for n in range(12)]
    made += [Made(made[0].settings, [], TrialState.RUNNING, HOSTILE), Made(made[1].settings, [], TrialState.PRUNED)]
    folder = write_sweep(tmp_path, made)
    finish(folder, 11, made[11])
    write_views(folder)
    assert len(_figures(folder)) == 5
    assert visible(read_page(folder.path / "report.html")).count(HOSTILE) == 1  # escaped
    failed = _rows(folder)[12]
    assert (failed["state"], failed["error"], failed["validation/R@1"]) == ("failed", HOSTILE, "")


def test_one_setting_at_a_time(tmp_path: Path) -> None:
    tried = {GAIN: (0.0, 0.02, 0.04), "regime.rule.positive_threshold": (0.9, 0.7, 0.8)}
    points = [{name: value} for name, values in tried.items() for value in values]
    made = [Made(point, [{"F1": 0.6 - 0.1 * n}, {"F1": 0.5 - 0.1 * n}]) for n, point in enumerate(points)]
    folder = write_sweep(tmp_path, made, {"F1": "maximize"})
    finish(folder, 0, made[0])
    write_views(folder)
    (curve,) = _figures(folder)[2]["data"]
    own = [sweep_trials(folder)[number] for number in (4, 5, 3)]
    assert curve["x"] == [0.7, 0.8, 0.9]
    assert curve["y"] == [trial.mean("F1") for trial in own]
    assert curve["error_y"]["array"] == [trial.deviation("F1") for trial in own]
    rows, run = _rows(folder), folder.run_folder(1, 1)
    assert [(row["trial"], row["seed"]) for row in rows[:3]] == [("0", "1"), ("0", "2"), ("1", "1")]
    assert float(rows[2]["validation/F1"]) == run.result["validation"]["F1"]
    assert (rows[2][GAIN], rows[2]["run"]) == ("0.02", run.name)
    folder.best_config_path.unlink()
    with pytest.raises(DamagedFileError, match=r"best/config.yaml is missing"):
        write_views(folder)


def test_of_two_objectives_the_first_decides(tmp_path: Path) -> None:
    values = [(0.5, 0.05), (0.7, 0.2), (0.6, 0.1), (0.55, 0.15)]
    made = [Made({"loss.gamma": float(n)}, [{"R@1": r, "ECE": e}] * 2) for n, (r, e) in enumerate(values)]
    folder = write_sweep(tmp_path, made, {"R@1": "maximize", "ECE": "minimize"})
    assert re.findall(r"^ +(\d+) ", _printed(folder), flags=re.MULTILINE) == ["1", "2", "3", "0"]
    write_views(folder)
    others, front = _figures(folder)[0]["data"]
    assert [sorted(trace["x"]) for trace in (others, front)] == [[0.55], [0.5, 0.6, 0.7]]
    assert others["marker"]["color"] != front["marker"]["color"]
    assert not any(trace["marker"]["showscale"] for trace in (others, front))  # the narrow have no room for two bars


@pytest.mark.parametrize("num_trials", [0, 1])
def test_a_sweep_that_has_just_started(tmp_path: Path, num_trials: int) -> None:
    folder = write_sweep(tmp_path, [Made({"a": 1}, [{"R@1": 0.5}])] * num_trials)
    write_views(folder)
    _printed(folder)
    assert len(_rows(folder)) == num_trials


def test_a_dry_sweep_shows_means_over_the_seeds(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path, [])
    row = {"num_pools_scored": 1000, "num_pseudo_pairs": 70, "num_selected_intents": 5, "base_accuracy": 0.5}
    row |= {"trial": 1, "pseudo_accuracy": 0.01, "params": [{"name": GAIN, "value": "0.01"}]}
    folder.write_dry([{**row, "seed": seed, "num_pseudo_pools": 100 * seed} for seed in (1, 2)])
    stream = io.StringIO()
    print_dry(folder, Console(file=stream, width=160, color_system=None))
    assert any({"1", "150", "gain_threshold=0.01"} <= set(line.split()) for line in stream.getvalue().splitlines())


@pytest.mark.parametrize("most", [0, 70])
def test_a_dry_sweep_shows_the_largest_selection_first_and_equal_ones_once(tmp_path: Path, most: int) -> None:
    folder = write_sweep(tmp_path, [])
    row = {"num_pools_scored": 100, "num_selected_intents": 0, "base_accuracy": 0.5, "seed": 1}
    folder.write_dry(
        [
            {
                **row, "trial": trial, "num_pseudo_pools": pools, "num_pseudo_pairs": 2 * pools,
                "params": [{"name": "scale", "value": '"absolute"'}, {"name": GAIN, "value": str(gain)},
                           {"name": "high", "value": str(trial)}],
            }
            for trial, pools, gain in [(0, 0, 0.5), (1, most, 0.5), (2, 0, 0.5), (3, 0, 0.1)]
        ]
    )  # fmt: skip
    stream = io.StringIO()
    print_dry(folder, Console(file=stream, width=200, color_system=None))
    shown = stream.getvalue()
    rows = [line.split() for line in shown.splitlines() if "50.0 %" in line]
    if most:
        assert [one[:2] for one in rows] == [["1", "70"], ["0", "and"]]
        assert rows[0][-2:] == ["gain_threshold=0.5,", "high=1"]
        assert "0 and 2 more" in shown
    else:
        assert "0 and 3 more" in shown
    assert ("try lower thresholds" in shown) == (most == 0)
    assert "all have scale=absolute" in shown


@pytest.mark.parametrize(("num_pools", "said"), [(4, "could be chance"), (40, "more than chance")])
def test_the_lead_is_over_the_next_trial_and_tested_over_the_pools(tmp_path: Path, num_pools: int, said: str) -> None:
    poor, good = (Made({"gamma": value}, [{"R@1": value}], margins=[2 * value - 1.5] * num_pools) for value in (0.5, 1))
    lead = SweepSummary(write_sweep(tmp_path, [poor, good])).lead
    assert lead is not None
    assert all(part in lead for part in ("Trial 1 leads trial 0", "+0.500", said))


def test_the_lead_is_tested_over_the_pools_that_count_in_both_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A metric may leave out other pools of each trial, and as many: their values must not be paired."""
    margins = [(1.0, -1.0), (0.0, 1.0), (1.0, 1.0), (1.0, 1.0)]  # of two trials; a pool without a lead doesn't count

    def hit(scores: PoolScores) -> FloatArray:
        leads = np.array([logit[0] - logit[1] for logit in scores.split(scores.logit)])
        return np.where(leads == 0, np.nan, leads > 0)

    monkeypatch.setattr(paired_tests, "find_metric", lambda name: Metric(name, "rank", "maximize", "hit", per_pool=hit))
    one, two = zip(*margins, (-1.0, 0.0), strict=True)
    trials = [Made({"g": g}, [{"R@1": r}], margins=m) for g, r, m in ((1, 0.75, one), (2, 0.7, two))]
    tested: list[tuple[list[list[float]], list[list[float]]]] = []

    def paired_test(first: FloatArray, second: FloatArray, *, seed: int) -> PairedTest:
        tested.append((first.tolist(), second.tolist()))
        return PairedTest(0.0, 1.0)

    monkeypatch.setattr(sweep_views, "paired_test", paired_test)
    assert "could be chance" in str(SweepSummary(write_sweep(tmp_path, trials)).lead)
    assert tested == [([[1.0, 1.0, 1.0]], [[0.0, 1.0, 1.0]])]  # the pools 0, 2, 3


def test_settings_without_effect_are_pointed_out(tmp_path: Path) -> None:
    trials = [Made({"gamma": gamma}, [{"R@1": 0.4, "NLL": 0.3}]) for gamma in (1, 2)]
    lead = SweepSummary(write_sweep(tmp_path, trials)).lead
    assert lead is not None
    assert lead.startswith("All 2 trials have the same results on validation: what they tune has no effect here")


def test_trials_that_are_equal_in_one_metric_alone_have_an_effect(tmp_path: Path) -> None:
    trials = [Made({"gamma": gamma}, [{"R@1": 0.4, "NLL": 0.1 * gamma}]) for gamma in (1, 2)]
    lead = SweepSummary(write_sweep(tmp_path, trials)).lead
    assert lead == "Trials 0 and 1, the first two of 2, are tied in R@1 on validation."
