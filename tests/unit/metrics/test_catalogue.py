from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import numpy as np
import pytest

from icalib.core.errors import SettingError
from icalib.metrics.builtin import BUILTIN
from icalib.metrics.catalogue import find_metric, known_metrics, metric_tag, metrics_among
from icalib.metrics.metric import Metric
from icalib.metrics.pairs import PoolScores


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Import paths of the metrics that installed packages register; fill it before the first use."""
    paths: list[str] = []

    def found(group: str) -> EntryPoints:
        return EntryPoints(EntryPoint(path.rpartition(":")[2], path, group) for path in paths)

    monkeypatch.setattr("importlib.metadata.entry_points", found)
    known_metrics.cache_clear()
    yield paths
    known_metrics.cache_clear()


def test_every_tag_is_that_of_one_metric() -> None:
    tags = [metric.tag for metric in BUILTIN]
    assert len(set(tags)) == len(tags)


def test_an_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(SettingError, match=r"no metric 'ECE_adaptiv'\. Did you mean `ECE_adaptive"):
        find_metric("ECE_adaptiv")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no_lab.metrics:mean_rank", "no object for metric `no_lab.metrics`: No module named 'no_lab'"),
        ("icalib.metrics.ranking:mean_rank", "has none of that name"),
        ("icalib.metrics.ranking:recall_at_k", r"Expected an instance of icalib\.metrics\.metric\.Metric"),
    ],
)
def test_an_import_path_without_a_metric_is_refused(path: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        find_metric(path)


def test_a_name_that_is_taken_is_refused(installed: list[str]) -> None:
    with pytest.raises(SettingError, match=r"TAKEN: there already is a metric 'NLL'"):
        find_metric(f"{__name__}:TAKEN")
    installed.append(f"{__name__}:TAKEN")
    known_metrics.cache_clear()
    with pytest.raises(SettingError, match=r"entry point `TAKEN`: there already is a metric 'NLL'"):
        known_metrics()


def test_metrics_of_packages_that_are_not_installed_are_left_out() -> None:
    assert list(metrics_among(["no_lab.metrics:mean_rank", "NLL", "NLL@platt", "R@1"])) == ["R@1", "NLL"]
    assert metric_tag("no_lab.metrics:mean_rank") == "data/no_lab.metrics:mean_rank"


def test_a_metric_without_a_function_or_direction_is_refused() -> None:
    with pytest.raises(SettingError, match="'nothing' has no function"):
        Metric("nothing", "data", None, "measures nothing")
    with pytest.raises(SettingError, match="direction 'up'"):
        Metric("up", "data", "up", "goes up", lambda samples: samples.num_pools)  # pyright: ignore[reportArgumentType]


TAKEN = Metric("NLL", "cal", "minimize", "another NLL", lambda samples: samples.num_pools)


@pytest.mark.parametrize(
    ("per_pool", "message"),
    [
        (lambda _: np.ones(2), r"'odd' returned values of shape \(2,\), .* or for each of 3 pools from `per_pool`"),
        (lambda scores: np.ones((scores.num_pools, 2)), r"'odd' returned values of shape \(3, 2\)"),
        (lambda _: None, r"'odd' returned values of shape \(\), object"),
        (lambda _: ["1"] * 3, r"'odd' returned values of shape \(3,\), <U1"),
        (lambda _: np.full(3, 1j), r"'odd' returned values of shape \(3,\), complex128"),
        (lambda _: [[1.0], [1.0, 2.0]], r"'odd': ValueError"),
        (lambda _: 1 / 0, r"'odd': ZeroDivisionError: division by zero \(.*test_catalogue\.py, line \d+\)"),
        (lambda _: sys.exit(0), r"'odd': SystemExit: 0 \(.*test_catalogue\.py"),
    ],
)
def test_a_metric_that_fails_or_has_other_values_is_named(per_pool: Any, message: str) -> None:
    scores = PoolScores.from_lists([[2.0, 1.0]] * 3, [[1, 0]] * 3)
    with pytest.raises(SettingError, match=message):
        Metric("odd", "rank", None, "wrong", per_pool=per_pool).value(scores)
    with pytest.raises(SettingError, match=r"'odd' returned values of shape \(\); expected a number for each of 1 "):
        Metric("odd", "rank", None, "wrong", lambda _: np.float64(1.0)).value(scores)  # pyright: ignore
