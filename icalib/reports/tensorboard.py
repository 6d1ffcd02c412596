"""TensorBoard as a view of a run folder's tables.

    tb/round_00/teacher_cross/{train,validation}   curves of a stage: the same tags in both
    tb/rounds                                      step = round: what was pseudo-labelled, how well, histogram of gain
    tb/test                                        final metrics, precision and recall, hparams

Steps continue over stages and rounds. Stages are not curves of one place: TensorBoard would leave out the points of one
from the step on at which the next file begins.

Every finished stage, every round and the test evaluation is one event file, moved into place when complete, so that a
view can be updated repeatedly while the run continues: existing files are left alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from tensorboard.compat.proto.event_pb2 import Event as TensorBoardEvent  # pyright: ignore[reportAttributeAccessIssue]
from tensorboard.summary.writer.record_writer import RecordWriter
from torch.utils.tensorboard.summary import histogram_raw, hparams, pr_curve, scalar

from icalib.core.events import Event, RunUpdated
from icalib.core.files import atomic_write
from icalib.core.run_folder import RunFolder
from icalib.core.run_tables import RoundSummary
from icalib.metrics.catalogue import metric_tag
from icalib.metrics.pairs import PoolScores
from icalib.reports.comparison import COLUMNS, flat_settings, with_outside_metrics

ROUND_TAGS = {
    "round/pools_selected": "num_pools_selected",
    "round/pairs_selected": "num_pairs_selected",
    "round/share_with_intents": "share_with_intents",
    "round/pool_accuracy": "pool_accuracy",
    "round/pair_accuracy": "pair_accuracy",
    "round/base_accuracy": "base_accuracy",
    "round/validation_accuracy": "validation_accuracy",
    "round/pools_with_intents": "num_pools_with_intents",
    "round/information_reliability": "information_reliability",
    "round/gain_reliability": "gain_reliability",
}
"""Fields of a round's summary by tag."""

# What distinguishes runs; the page shows the first few by default.
_HPARAMS = ("method", "data", "labelled", "seed", "backbone", "limit", "resample_labels", "settings")


def update_tensorboard(event: Event) -> None:
    """Update the view when a run folder has something new."""
    if isinstance(event, RunUpdated):
        write_tensorboard(RunFolder(event.path))


def write_tensorboard(run: RunFolder) -> Path:
    """Update the TensorBoard view of a run, finished or not; returns the folder `tb`."""
    training = run.training()
    group = itemgetter("stage", "round", "split")
    rows = sorted(training.to_pylist(), key=lambda row: (*group(row), row["step"]))
    for (stage, number, split), own in groupby(rows, key=group):
        curves = ((scalar(row["tag"], row["value"]), row["step"]) for row in own)
        _write_once(run.path, f"round_{number:02d}/{stage}/{split}", stage, curves)
    for summary in run.round_summaries():
        _write_once(run.path, "rounds", f"round_{summary.round:03d}", _round(summary))
    if (run.path / "metrics.parquet").is_file():
        last_step = max(training["step"].to_pylist(), default=0)
        _write_once(run.path, "test", "final", _test(run, last_step))
    return run.path / "tb"


def _write_once(folder: Path, part: str, name: str, points: Iterable[tuple[Any, int]]) -> None:
    """Write summaries at steps as one event file of <folder>/tb/<part>, which appears complete, unless it exists.

    SummaryWriter writes in a thread, whose failure on a full disk it reports to no one in time.
    """
    target = folder / "tb" / part / f"events.out.tfevents.{name}"
    if target.is_file():
        return
    with atomic_write(target) as temporary, temporary.open("wb") as file:
        writer = RecordWriter(file)
        writer.write(TensorBoardEvent(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())
        for summary, step in points:
            writer.write(TensorBoardEvent(wall_time=time.time(), step=step, summary=summary).SerializeToString())


def _round(summary: RoundSummary) -> Iterator[tuple[Any, int]]:
    values = {tag: getattr(summary, field) for tag, field in ROUND_TAGS.items()}
    values |= {f"round/pools_{rule}": num_pools for rule, num_pools in summary.num_pools_by_rule.items()}
    for tag, value in values.items():
        if value is not None:
            yield scalar(tag, value), summary.round
    if sum(summary.gain_histogram_counts):
        yield _gain(summary), summary.round


def _gain(summary: RoundSummary) -> Any:
    edges, counts = np.array(summary.gain_histogram_edges), np.array(summary.gain_histogram_counts)
    used = np.flatnonzero(counts)  # the bins span all possible gains, and the page divides min to max into 30 even ones
    edges, counts = edges[used[0] : used[-1] + 2], counts[used[0] : used[-1] + 1]
    centres = (edges[1:] + edges[:-1]) / 2  # the pairs' own gains are not kept, so moments are the bins'
    return histogram_raw(
        "round/gain",
        min=edges[0],
        max=edges[-1],
        num=int(counts.sum()),
        sum=float(counts @ centres),
        sum_squares=float(counts @ centres**2),
        bucket_limits=edges[1:].tolist(),
        bucket_counts=counts.tolist(),
    )


def _test(run: RunFolder, last_step: int) -> Iterator[tuple[Any, int]]:
    rows = run.metrics().filter(pc.field("split") == "test").to_pylist()
    values = {row["metric"]: row["value"] for row in rows if math.isfinite(row["value"])}
    shown = {metric_tag(metric): values[metric] for metric in with_outside_metrics(COLUMNS, values) if metric in values}
    for tag, value in shown.items():
        yield scalar(tag, value), last_step  # the HParams page reads its metrics there
    scores = PoolScores.from_predictions(run.predictions("test"))
    yield pr_curve("class/precision_recall", scores.label, scores.prob), last_step
    for summary in hparams(tracked_settings(run.config), shown):
        yield summary, 0


def tracked_settings(config: Mapping[str, Any]) -> dict[str, int | float | str]:
    """Return what distinguishes runs, in a form that the HParams page can show."""
    found = flat_settings({name: config[name] for name in _HPARAMS if name in config})
    return {name: value if isinstance(value, (int, float, str)) else str(value) for name, value in found.items()}
