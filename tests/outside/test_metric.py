"""The recipe docs/extend/README.md, used from outside icalib."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from unit.metrics.made_predictions import simulated_table
from unit.reports.fake_runs import write_pools, write_run
from unit.reports.pages import read_page, visible
from unit.sweeps.made_spaces import GRID, made_folder, write_space

from icalib.methods.catalogue import load_method
from icalib.metrics.catalogue import known_metrics, metric_tag
from icalib.metrics.summary import summarise
from icalib.pipeline.config import RunConfig
from icalib.reports.comparison import best_labels, method_rows, shown_metrics
from icalib.reports.html import write_report
from icalib.reports.paired_tests import paired_tests
from icalib.sweeps.sweep import trial_settings

PATH = "my_lab.metrics:mean_rank"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """my_lab as pip installs it, with the metric as an entry point."""
    info = tmp_path / "my_lab-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-lab\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[icalib.metrics]\nmean_rank = {PATH}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    known_metrics.cache_clear()
    yield
    known_metrics.cache_clear()


def result(method: str, value: float) -> dict[str, object]:
    return {"method": method, "labelled": 0.1, "seed": 1, "test": {"R@1": 0.5, PATH: value, "ECE@platt": 0.1}}


def test_an_import_path_adds_a_row_with_an_interval() -> None:
    predictions = simulated_table(60, seed=1)
    table = summarise(predictions, threshold=0.4, seed=0, also=(PATH,), num_bootstrap=50)
    *ours, row = table.to_pylist()
    assert row["metric"] == PATH
    assert row["low"] < row["value"] < row["high"]
    without = summarise(predictions, threshold=0.4, seed=0, num_bootstrap=50)
    np.testing.assert_array_equal([one["low"] for one in ours], without["low"].to_numpy())


@pytest.mark.usefixtures("installed")
def test_an_entry_point_is_measured_in_every_run() -> None:
    table = summarise(simulated_table(20, seed=1), threshold=0.4, seed=0, num_bootstrap=0)
    assert table["metric"].to_pylist()[-1] == "mean_rank"
    assert metric_tag("mean_rank") == metric_tag(PATH) == "rank/mean_rank"


def test_comparisons_show_it_and_know_that_less_is_better() -> None:
    results = [result("first", 2.5), result("second", 1.5)]
    assert shown_metrics(results, ("R@1",)) == ("R@1", PATH)
    assert best_labels(method_rows(results), PATH) == {"second"}


def test_a_sweep_can_tune_it(tmp_path: Path) -> None:
    space = write_space(tmp_path, GRID.replace('{"F1": "maximize"}', f'{{"{PATH}": "minimize", "F1": "maximize"}}'))
    assert dict(space.metrics) == {PATH: "minimize", "F1": "maximize"}
    method = load_method("bert")
    base = RunConfig(
        method="bert", data=tmp_path, labelled=0.1, seed=1, backbone="minilm", experiment="test", settings=method
    )
    trial = trial_settings(made_folder(tmp_path, space), base, 3, method)
    assert trial.metrics == (PATH,)
    assert RunConfig.model_validate_json(trial.model_dump_json()) == trial
    assert "metrics" not in base.model_dump()  # so that older run folders keep their settings


def test_a_report_shows_and_tests_it_by_its_path(tmp_path: Path) -> None:
    data = write_pools(tmp_path / "desk")
    runs = [write_run(tmp_path / "runs", data, method, 1) for method in ("tsst", "icast")]
    for run in runs:
        found = run.result
        run.write_json("result.json", {**found, "test": {**found["test"], PATH: 1.5}})
    shown = visible(read_page(write_report(runs, tmp_path / "report.html", "mine")))
    assert "mean rank" in shown
    assert PATH in {test.metric for test in paired_tests({run.result["method"]: [run] for run in runs})}
