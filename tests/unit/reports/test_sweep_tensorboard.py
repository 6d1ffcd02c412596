from __future__ import annotations

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from unit.reports.fake_sweeps import RULE, write_published, write_sampled

from icalib.metrics.catalogue import metric_tag
from icalib.reports.sweep_tensorboard import write_sweep_tensorboard
from icalib.reports.sweep_trials import sweep_trials


def _read(folder: Path) -> EventAccumulator:
    return EventAccumulator(str(folder)).Reload()


def _hparams(events: EventAccumulator) -> dict[str, object]:
    content = events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    hparams = HParamsPluginData.FromString(content).session_start_info.hparams
    return {name: getattr(value, value.WhichOneof("kind")) for name, value in hparams.items()}


def test_every_trial_once_with_its_mean_over_the_seeds(tmp_path: Path) -> None:
    folder = write_published(tmp_path)
    tb = write_sweep_tensorboard(folder)
    before = {path: path.stat().st_mtime_ns for path in tb.rglob("*tfevents*")}
    write_sweep_tensorboard(folder)
    assert {path: path.stat().st_mtime_ns for path in tb.rglob("*tfevents*")} == before
    trials = sweep_trials(folder)
    assert len(before) == len(trials)
    events = _read(tb / "trial_0003")
    assert _hparams(events) == {f"{RULE}.gain_threshold": 0.03}
    for metric in ("F1", "ECE"):
        (scalar,) = events.Scalars(metric_tag(metric))
        assert scalar.value == pytest.approx(trials[3].mean(metric))


def test_no_trial_hides_the_settings_of_others(tmp_path: Path) -> None:
    """TensorBoard takes the first experiment that it finds for the settings of all trials."""
    tb = write_sweep_tensorboard(write_published(tmp_path))
    assert all("_hparams_/experiment" not in _read(trial).summary_metadata for trial in tb.iterdir())


def test_running_trials_wait_and_failed_ones_have_no_end(tmp_path: Path) -> None:
    folder = write_sampled(tmp_path, num_trials=6)
    tb = write_sweep_tensorboard(folder)
    assert sorted(path.name for path in tb.iterdir()) == [f"trial_{number:04d}" for number in range(6)]
    failed, complete = _read(tb / "trial_0004"), _read(tb / "trial_0005")
    assert failed.Tags()["scalars"] == []
    assert "head.kernel" in _hparams(failed)
    assert "_hparams_/session_end_info" not in failed.summary_metadata
    assert "_hparams_/session_end_info" in complete.summary_metadata
