"""Runs in MLflow and Weights & Biases: what is sent, once each; the real packages where they are installed."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from unit.reports.fake_runs import write_pools, write_run

from icalib.core.errors import SettingError
from icalib.core.events import Event, Message, RunUpdated, ignore
from icalib.core.run_folder import RunFolder
from icalib.reports.trackers import TrackedRun, Tracking, trackers


def test_all_of_a_run_is_sent_once(tmp_path: Path) -> None:
    data = write_pools(tmp_path / "desk")
    run = write_run(tmp_path / "runs", data, "icast", 1, finished=False, rounds=2)
    points, ended = list[tuple[str, float, int]](), list[RunFolder]()
    tracking = Tracking(
        "ours", lambda folder: TrackedRun(lambda *point: points.append(point), lambda: ended.append(folder)), ignore
    )
    for event in (Message("x"), RunUpdated(run.path), RunUpdated(run.path)):
        tracking(event)
    assert not ended
    assert len(points) == len(set(points))
    assert [point[1:] for point in points if point[0] == "round/pools_selected"] == [(470.0, 1), (560.0, 2)]
    stages = {row["stage"] for row in run.training().to_pylist()}
    curves = {point[0] for point in points if point[0].endswith("/validation/rank/MAP")}
    assert curves == {f"{stage}/validation/rank/MAP" for stage in stages}
    finished = write_run(tmp_path / "other", data, "icast", 1, rounds=2)
    for name in ("metrics.parquet", "predictions"):
        (finished.path / name).rename(run.path / name)
    tracking(RunUpdated(run.path))
    tracking(RunUpdated(run.path))
    assert [folder.path for folder in ended] == [run.path]
    (final,) = [point[1] for point in points if point[0] == "final_test/R@1"]
    assert final == finished.result["test"]["R@1"]


def test_a_tracker_that_fails_ends_a_run_only_where_it_begins(tmp_path: Path) -> None:
    run, messages = write_run(tmp_path / "runs", write_pools(tmp_path / "desk"), "tsst", 1, rounds=1), list[Event]()

    def fails(*_: Any) -> Any:
        raise ConnectionError("refused\n[SQL: ...]")

    with pytest.raises(SettingError, match=r"--track ours failed: ConnectionError: refused\. Correct its settings"):
        Tracking("ours", fails, messages.append)(RunUpdated(run.path))
    tracking = Tracking("ours", lambda _: TrackedRun(fails, fails), messages.append)
    for _ in range(2):
        tracking(RunUpdated(run.path))
    assert messages == [Message(f"ours lacks the rest of {run.name}: ConnectionError: refused")]


def test_a_tracker_that_is_unknown_or_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match=r"--track neptune is unknown\. Choose one of: mlflow, wandb"):
        trackers(["neptune"], ignore)

    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("icalib.reports.trackers.import_module", missing)
    with pytest.raises(SettingError, match=r"pip install 'icalib\[mlflow\]'"):
        trackers(["mlflow"], ignore)
    assert trackers([], ignore) == []


def test_mlflow_has_curves_settings_and_a_run_of_its_own_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow", exc_type=ImportError)
    warnings.simplefilter("ignore")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    run = write_run(tmp_path / "runs", write_pools(tmp_path / "desk"), "tsst", 1, rounds=1)
    for _ in range(2):  # the second as after an interruption
        (tracker,) = trackers(["mlflow"], ignore)
        tracker(RunUpdated(run.path))
    client = mlflow.MlflowClient()
    found, other = client.search_runs([mlflow.get_experiment_by_name(run.config["experiment"]).experiment_id])
    assert found.info.run_name == other.info.run_name == run.name
    assert found.data.params["settings.regime.num_passes"] == "5"
    curves = [name for name in found.data.metrics if name.endswith("/validation/rank/MAP")]
    assert sum(len(client.get_metric_history(found.info.run_id, name)) for name in curves) == 6
    assert found.data.metrics["final_test/R_at_1"] == pytest.approx(run.result["test"]["R@1"])
    assert found.info.status == "FINISHED"


def test_nothing_is_left_to_do_at_exit_for_an_mlflow_that_went_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, at_exit = MagicMock(), list[Any]()
    client.log_metric.side_effect = ConnectionError("refused")
    mlflow = SimpleNamespace(MlflowClient=lambda: client, set_experiment=lambda _: SimpleNamespace(experiment_id="1"))
    monkeypatch.setattr("icalib.reports.trackers.import_module", lambda _: mlflow)
    monkeypatch.setattr("atexit.register", lambda call: at_exit.append(call) or call)
    monkeypatch.setattr("atexit.unregister", at_exit.remove)
    run, messages = write_run(tmp_path / "runs", write_pools(tmp_path / "desk"), "tsst", 1, rounds=1), list[Event]()
    (tracker,) = trackers(["mlflow"], messages.append)
    tracker(RunUpdated(run.path))
    assert len(messages) == 1
    assert at_exit == []


def test_wandb_writes_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", exc_type=ImportError)
    warnings.simplefilter("ignore")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = write_run(tmp_path / "runs", write_pools(tmp_path / "desk"), "tsst", 1, rounds=1)
    monkeypatch.chdir(tmp_path)
    (tracker,) = trackers(["wandb"], ignore)
    tracker(RunUpdated(run.path))
    assert list(tmp_path.glob("wandb/**/*.wandb"))
