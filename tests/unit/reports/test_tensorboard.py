from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from unit.reports.fake_runs import write_pools, write_run

from icalib.core.run_folder import RunFolder
from icalib.core.run_tables import TRAINING_SCHEMA
from icalib.reports.tensorboard import metric_tag, write_tensorboard


def _read(folder: Path) -> EventAccumulator:
    return EventAccumulator(str(folder), size_guidance={"scalars": 0, "histograms": 0}).Reload()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    root = tmp_path_factory.mktemp("tb")
    run = write_run(root / "runs", write_pools(root / "desk"), "icast", 1)
    write_tensorboard(run)
    return run


def test_curves_are_those_of_the_table(run: RunFolder) -> None:
    training = run.training()
    for number in range(4):
        for split in ("train", "validation"):
            rows = training.filter(
                (pc.field("round") == number) & (pc.field("split") == split) & (pc.field("tag") == "loss/total")
            ).sort_by("step")
            stage = "student" if number else "teacher"
            scalars = _read(run.path / "tb" / f"round_{number:02d}" / stage / split).Scalars("loss/total")
            assert [scalar.step for scalar in scalars] == rows["step"].to_pylist()
            np.testing.assert_allclose([s.value for s in scalars], rows["value"].to_numpy(), rtol=1e-6)


def test_rounds_have_their_values_and_gain(run: RunFolder) -> None:
    events = _read(run.path / "tb" / "rounds")
    summaries = run.round_summaries()
    selected = [(scalar.step, scalar.value) for scalar in events.Scalars("round/pools_selected")]
    assert selected == [(summary.round, summary.num_pools_selected) for summary in summaries]
    assert [histogram.step for histogram in events.Histograms("round/gain")] == [1, 2, 3]
    gain = events.Histograms("round/gain")[0].histogram_value
    edges, counts = summaries[0].gain_histogram_edges, summaries[0].gain_histogram_counts
    used = [index for index, count in enumerate(counts) if count]
    assert gain.num == sum(gain.bucket) == sum(counts)
    assert list(gain.bucket) == counts[used[0] : used[-1] + 1]
    assert (gain.min, gain.max) == (edges[used[0]], edges[used[-1] + 1])


def test_final_metrics_and_hparams_once(run: RunFolder) -> None:
    write_tensorboard(run)
    events = _read(run.path / "tb" / "test")
    (recall,) = events.Scalars(metric_tag("R@1"))
    assert recall.value == pytest.approx(run.result["test"]["R@1"])
    assert recall.step == max(run.training()["step"].to_pylist())
    assert "class/precision_recall" in events.Tags()["tensors"]
    content = events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    hparams = HParamsPluginData.FromString(content).session_start_info.hparams
    assert hparams["method"].string_value == "icast"
    assert "resample_labels" not in hparams  # false
    assert hparams["settings.regime.gain_threshold"].number_value == 0.02
    assert hparams["settings.regime.layers"].string_value == "[1, 2]"
    assert len(list((run.path / "tb").rglob("*tfevents*"))) == 4 * 2 + 3 + 1


def test_again_adds_only_what_is_new(tmp_path: Path) -> None:
    data = write_pools(tmp_path / "desk")
    unfinished = write_run(tmp_path / "runs", data, "tsst", 1, finished=False, rounds=2)
    folder = write_tensorboard(unfinished)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*tfevents*")}
    assert not (folder / "test").exists()

    finished = write_run(tmp_path / "other", data, "tsst", 1, rounds=3)
    finished_folder = write_tensorboard(finished)
    for path in before:
        assert (finished_folder / path.relative_to(folder)).is_file()
    for name in ("training.parquet", "rounds/3", "metrics.parquet", "predictions"):
        (finished.path / name).rename(unfinished.path / name)
    write_tensorboard(unfinished)

    after = {path: path.stat().st_mtime_ns for path in folder.rglob("*tfevents*")}
    assert {path: after[path] for path in before} == before
    added = {path.relative_to(folder).parts[0] for path in after.keys() - before.keys()}
    assert added == {"round_03", "rounds", "test"}
    assert not list(unfinished.path.glob(".tb-*"))


@pytest.mark.parametrize("stages", [("teacher_similarity", "teacher_cross"), ("member_1_teacher", "member_2_teacher")])
def test_curves_of_a_rounds_stages_have_places_of_their_own(tmp_path: Path, stages: tuple[str, str]) -> None:
    """In one place, TensorBoard's server shows of a file only what is before the first step of the next."""
    run = write_run(tmp_path, write_pools(tmp_path / "desk"), "tsst", 1, rounds=0)
    rows = [{**row, "stage": stage} for stage in stages for row in run.training().to_pylist()]
    run.write_table("training.parquet", pa.Table.from_pylist(rows, schema=TRAINING_SCHEMA))
    folder = write_tensorboard(run) / "round_00"
    places = {path.parent.relative_to(folder).as_posix() for path in folder.rglob("events.*")}
    assert places == {f"{stage}/{split}" for stage in stages for split in ("train", "validation")}
