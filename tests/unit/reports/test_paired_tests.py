from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from unit.reports.fake_runs import write_pools, write_run

from icalib.core.errors import DataError
from icalib.core.run_folder import RunFolder
from icalib.metrics.catalogue import find_metric
from icalib.metrics.pairs import FloatArray, PoolScores
from icalib.metrics.ranking import average_precision
from icalib.reports.paired_tests import paired_tests


def test_differences_are_those_of_the_results(runs: list[RunFolder]) -> None:
    groups = {method: [run for run in runs if run.result["method"] == method] for method in ("tsst", "icast")}
    for test in paired_tests(groups):
        means = [sum(run.result["test"][test.metric] for run in groups[m]) / 2 for m in ("tsst", "icast")]
        assert (test.first, test.second) == ("tsst", "icast")
        assert test.difference == pytest.approx(means[0] - means[1])
        assert test.p_holm == test.p_value


def test_p_value_agrees_with_a_t_test(tmp_path: Path) -> None:
    data = write_pools(tmp_path / "desk", num_pools=400)
    groups = {f"s{seed}": [write_run(tmp_path / "runs", data, "tsst", seed)] for seed in (1, 2)}
    (test,) = [test for test in paired_tests(groups) if test.metric == "MAP"]
    values = [average_precision(PoolScores.from_predictions(run.predictions("test"))) for (run,) in groups.values()]
    assert test.p_value == pytest.approx(stats.ttest_rel(*values).pvalue, abs=0.03)


def test_a_metric_of_few_pools_keeps_the_others(runs: list[RunFolder], monkeypatch: pytest.MonkeyPatch) -> None:
    def of_one_pool(scores: PoolScores) -> FloatArray:
        return np.where(np.arange(scores.num_pools) == 0, 1.0, np.nan)

    rare = replace(find_metric("Brier"), per_pool=of_one_pool)
    monkeypatch.setattr(
        "icalib.reports.paired_tests.find_metric", lambda name: rare if name == "Brier" else find_metric(name)
    )
    groups = {method: [run for run in runs if run.result["method"] == method] for method in ("tsst", "icast")}
    assert {test.metric for test in paired_tests(groups)} == {"MAP", "R@1"}


def test_other_pools_are_refused(tmp_path: Path) -> None:
    groups = {
        str(n): [write_run(tmp_path / "runs", write_pools(tmp_path / f"{n}" / f"desk{n}", n), "tsst", 1)]
        for n in (20, 30)
    }
    with pytest.raises(DataError, match="same pools"):
        paired_tests(groups)
