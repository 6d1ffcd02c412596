"""TensorBoard as a view of a run folder's tables.

    tb/round_00/{train,validation}   curves of a stage: the same tags in both; steps continue over the rounds
    tb/rounds                        step = round: what was pseudo-labelled, how well, histogram of gain
    tb/test                          final metrics, precision and recall, hparams
    tb/layout                        the page CUSTOM SCALARS: rounds first, then learning curves

Every finished stage, every round and the test evaluation is one event file, moved into place when complete, so that a
view can be updated repeatedly while the run continues: existing files are left alone.
"""

from __future__ import annotations

import math
import os
import shutil
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from torch.utils.tensorboard.summary import hparams
from torch.utils.tensorboard.writer import SummaryWriter

from icalib.core.events import Event, RunUpdated
from icalib.core.files import whole_file
from icalib.core.run_folder import RunFolder
from icalib.core.run_tables import RoundSummary
from icalib.core.temporary import remove_abandoned, temporary_beside
from icalib.metrics.catalogue import metric_tag
from icalib.metrics.pairs import PoolScores
from icalib.reports.comparison import COLUMNS, with_outside_metrics
from icalib.reports.gain import bulk

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

LAYOUT = {
    "Rounds of self-training": {
        "pools selected": ["Multiline", [r"round/pools_selected", r"round/pools_with_intents"]],
        "precision: selected, every pool, validation": [
            "Multiline",
            [r"round/pool_accuracy", r"round/base_accuracy", r"round/validation_accuracy"],
        ],
        "gain: fraction with intents, reliability": [
            "Multiline",
            [r"round/share_with_intents", r"round/.*reliability"],
        ],
    },
    "Learning curves": {
        "ranking on validation": ["Multiline", [r"rank/(R@1|MAP)$"]],
        "loss": ["Multiline", [r"loss/total"]],
        "calibration on validation": ["Multiline", [r"cal/(ECE|NLL)$"]],
        "learning rate": ["Multiline", [r"opt/lr.*"]],
    },
}
"""The page CUSTOM SCALARS: charts by section, each with regular expressions of tags."""

# What distinguishes runs; the page shows the first few by default.
_HPARAMS = ("method", "data", "labelled", "seed", "backbone", "settings")


def update_tensorboard(event: Event) -> None:
    """Update the view when a run folder has something new."""
    if isinstance(event, RunUpdated):
        write_tensorboard(RunFolder(event.path))


def write_tensorboard(run: RunFolder) -> Path:
    """Update the TensorBoard view of a run, finished or not; returns the folder `tb`.

    Raises:
        StorageError: the disk is full or can't be written; what was written before remains usable.
    """
    training = run.training()
    if training.num_rows:
        write_once(run.path, "layout", "layout", _write_layout)
    for (stage, number, split), rows in _curves(training):
        write_once(run.path, f"round_{number:02d}/{split}", stage, partial(_write_curves, rows))
    for summary in run.round_summaries():
        write_once(run.path, "rounds", f"round_{summary.round:03d}", partial(_write_round, summary))
    if (run.path / "metrics.parquet").is_file():
        last_step = max(training["step"].to_pylist(), default=0)
        write_once(run.path, "test", "final", partial(_write_test, run, last_step))
    return run.path / "tb"


@cache
def _report_once() -> None:
    """Leave the errors of TensorBoard's writing threads to those who wait for them: closing a writer raises them."""
    earlier = threading.excepthook

    def report(failed: threading.ExceptHookArgs) -> None:
        if type(failed.thread).__name__ != "_AsyncWriterThread":
            earlier(failed)

    threading.excepthook = report


def write_once(folder: Path, part: str, name: str, write: Callable[[SummaryWriter], None]) -> None:
    """Write one event file of <folder>/tb/<part>, which appears complete, unless it exists.

    Raises:
        StorageError: the disk is full or can't be written.
    """
    target = folder / "tb" / part / f"events.out.tfevents.{name}"
    if target.is_file():
        return
    # TensorBoard treats any folder under tb/ as a run, so the file is written outside.
    with whole_file(target) as temporary, _scratch(folder) as scratch:
        _report_once()
        with SummaryWriter(str(scratch)) as writer:
            write(writer)
        (written,) = scratch.iterdir()
        os.replace(written, temporary)


@contextmanager
def _scratch(folder: Path) -> Generator[Path]:
    """Yield a folder that is removed at the end, or by the next process that writes here if this one is killed."""
    remove_abandoned(folder)
    scratch = temporary_beside(folder / "tb")
    scratch.mkdir()
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _write_layout(writer: SummaryWriter) -> None:
    writer.add_custom_scalars(LAYOUT)


def _curves(training: pa.Table) -> Iterator[tuple[tuple[str, int, str], pa.Table]]:
    keys = training.select(["stage", "round", "split"]).group_by(["stage", "round", "split"]).aggregate([])
    for key in keys.to_pylist():
        of_stage = (
            (pc.field("stage") == key["stage"])
            & (pc.field("round") == key["round"])
            & (pc.field("split") == key["split"])
        )
        yield (key["stage"], key["round"], key["split"]), training.filter(of_stage)


def _write_curves(rows: pa.Table, writer: SummaryWriter) -> None:
    for row in rows.sort_by("step").to_pylist():
        writer.add_scalar(row["tag"], row["value"], row["step"])


def _write_round(summary: RoundSummary, writer: SummaryWriter) -> None:
    for tag, field in ROUND_TAGS.items():
        value = getattr(summary, field)
        if value is not None:
            writer.add_scalar(tag, value, summary.round)
    for rule, num_pools in summary.num_pools_by_rule.items():
        writer.add_scalar(f"round/pools_{rule}", num_pools, summary.round)
    if sum(summary.gain_histogram_counts):
        _write_gain(writer, summary)


def _write_gain(writer: SummaryWriter, summary: RoundSummary) -> None:
    edges, counts = np.array(summary.gain_histogram_edges), np.array(summary.gain_histogram_counts)
    centres = (edges[1:] + edges[:-1]) / 2  # the pairs' own gains are not kept, so moments are the bins'
    # The page divides min to max into 30 even bins, so the tails go into the outermost bins that it gets.
    bins = bulk(summary)
    buckets = counts[bins].copy()
    buckets[0] += counts[: bins.start].sum()
    buckets[-1] += counts[bins.stop :].sum()
    writer.add_histogram_raw(
        "round/gain",
        min=edges[bins.start],
        max=edges[bins.stop],
        num=int(counts.sum()),
        sum=float(counts @ centres),
        sum_squares=float(counts @ centres**2),
        bucket_limits=edges[1:][bins].tolist(),
        bucket_counts=buckets.tolist(),
        global_step=summary.round,
    )


def _write_test(run: RunFolder, last_step: int, writer: SummaryWriter) -> None:
    rows = run.metrics().filter(pc.field("split") == "test").to_pylist()
    values = {row["metric"]: row["value"] for row in rows if math.isfinite(row["value"])}
    shown = {metric_tag(metric): values[metric] for metric in with_outside_metrics(COLUMNS, values) if metric in values}
    for tag, value in shown.items():
        writer.add_scalar(tag, value, last_step)  # the HParams page reads its metrics there
    scores = PoolScores.from_predictions(run.predictions("test"))
    writer.add_pr_curve("class/precision_recall", scores.label, scores.prob, last_step)
    events = writer.file_writer
    assert events is not None  # open until the writer is closed
    for summary in hparams(flat_settings(run.config), shown):
        events.add_summary(summary)


def flat_settings(config: Mapping[str, Any]) -> dict[str, int | float | str]:
    """Dotted settings with a value, in a form that the HParams page can show."""
    flat: dict[str, int | float | str] = {}

    def add(prefix: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                add(f"{prefix}.{key}", inner)
        elif value is not None:
            flat[prefix] = value if isinstance(value, (int, float, str)) else str(value)

    for key in _HPARAMS:
        add(key, config[key])
    return flat
