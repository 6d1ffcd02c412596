"""Runs in MLflow and Weights & Biases: what is sent, once each; the real packages where they are installed."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from unit.reports.fake_runs import write_pools, write_run

from icalib.core.errors import SettingError
from icalib.core.events import Message, RunUpdated
from icalib.core.run_folder import RunFolder
from icalib.reports.trackers import TrackedRun, Tracking, trackers


def test_all_of_a_run_is_sent_once(tmp_path: Path) -> None:
    data = write_pools(tmp_path / "desk")
    run = write_run(tmp_path / "runs", data, "icast", 1, finished=False, rounds=2)
    points, ended = list[tuple[str, float, int]](), list[RunFolder]()
    tracking = Tracking(lambda folder: TrackedRun(lambda *point: points.append(point), lambda: ended.append(folder)))
    for event in (Message("x"), RunUpdated(run.path), RunUpdated(run.path)):
        tracking(event)
    assert not ended
    assert len(points) == len(set(points))
    assert [point[1:] for point in points if point[0] == "round/pools_selected"] == [(470.0, 1), (560.0, 2)]
    assert sum(point[0] == "validation/rank/MAP" for point in points) == 9
    finished = write_run(tmp_path / "other", data, "icast", 1, rounds=2)
    for name in ("metrics.parquet", "predictions"):
        (finished.path / name).rename(run.path / name)
    tracking(RunUpdated(run.path))
    tracking(RunUpdated(run.path))
    assert [folder.path for folder in ended] == [run.path]
    (final,) = [point[1] for point in points if point[0] == "final_test/R@1"]
    assert final == finished.result["test"]["R@1"]


def test_a_tracker_that_is_unknown_or_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match=r"--track neptune is unknown\. Choose one of: mlflow, wandb"):
        trackers(["neptune"])

    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("icalib.reports.trackers.import_module", missing)
    with pytest.raises(SettingError, match=r"pip install 'icalib\[mlflow\]'"):
        trackers(["mlflow"])
    assert trackers([]) == []


def test_mlflow_has_curves_settings_and_one_run_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", exc_type=ImportError)
    warnings.simplefilter("ignore")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    run = write_run(tmp_path / "runs", write_pools(tmp_path / "desk"), "tsst", 1, rounds=1)
    for _ in range(2):  # the second resumes the run
        (tracker,) = trackers(["mlflow"])
        tracker(RunUpdated(run.path))
    (found,) = mlflow.MlflowClient().search_runs([mlflow.get_experiment_by_name("runs").experiment_id])
    assert found.data.params["settings.regime.num_passes"] == "5"
    assert found.data.metrics["final_test/R_at_1"] == pytest.approx(run.result["test"]["R@1"])
    assert found.info.status == "FINISHED"


def test_wandb_writes_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", exc_type=ImportError)
    warnings.simplefilter("ignore")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = write_run(tmp_path / "runs", write_pools(tmp_path / "desk"), "tsst", 1, rounds=1)
    (tracker,) = trackers(["wandb"])
    tracker(RunUpdated(run.path))
    assert list((tmp_path / "runs").rglob("*.wandb"))
