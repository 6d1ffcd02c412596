"""Labels of unlabelled pools, which a run must not see."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from helpers.pool_folders import pools_digest, seal
from helpers.runs import small_settings

from icalib.core.files import read_json, write_json
from icalib.data.pool_folder import SplitWriter, described
from icalib.data.pools import iter_pools, prepared_inputs, read_column
from icalib.data.schema import NONE_RIGHT, POOLS_FILE, SPLITS, Split
from icalib.data.selection import Selection
from icalib.pipeline.run import RunContext, run


def none_right(pool: dict[str, Any]) -> None:
    pool["label"], pool["also_right"] = NONE_RIGHT, []


def others_right(pool: dict[str, Any]) -> None:
    pool["also_right"] = [index for index in range(len(pool["candidates"])) if index != pool["label"]][:2]


def another_right(pool: dict[str, Any]) -> None:
    pool["label"], pool["also_right"] = (pool["label"] + 1) % len(pool["candidates"]), []


def relabelled(pools: Path, folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of the pools in which those that a run doesn't label have other labels."""
    shutil.copytree(pools, folder)
    hidden = set(
        Selection(labelled_fraction=0.3).rows("train", "unlabelled", read_column(pools, "train", "label_order"))
    )
    writers: dict[Split, SplitWriter] = {split: SplitWriter(folder, split, prepared_inputs(pools)) for split in SPLITS}
    for split, writer in writers.items():
        with writer:
            rows = [pool for batch in iter_pools(pools, split) for pool in batch.to_pylist()]
            for row, pool in enumerate(rows):
                if split == "train" and row in hidden:
                    change(pool)
                writer.add(pool)
    write_json(folder / POOLS_FILE, read_json(folder / POOLS_FILE) | described(writers))
    seal(folder)
    assert pools_digest(folder) != pools_digest(pools)
    return folder


def left_by(method: str, pools: Path, backbone: Path, around: RunContext) -> dict[str, Any]:
    """Fit, predictions and metrics of the calibrators of a run; metrics of pseudo labels may know what is right."""
    changes: dict[str, Any] = dict.fromkeys(("similarity", "intent", "domain_pretraining")) | {
        "calibration": "prior-shift"
    }
    made = run(small_settings(method, pools, backbone, **changes), around)
    tables = {split: made.predictions(split) for split in ("validation", "test")}
    tables["metrics"] = pq.read_table(made.path / "metrics.parquet", filters=[("split", "=", "test")])
    texts = {name: json.dumps(table.to_pylist()) for name, table in tables.items()}  # in which NaN equals NaN
    return {"fitted": read_json(made.path / "fitted.json"), **texts}


@pytest.mark.parametrize("method", ["bert", "tsst"])
def test_a_run_is_the_same_whatever_the_labels_of_its_unlabelled_pools(
    method: str, tiny_pools: Path, tiny_bert: Path, around: RunContext, tmp_path: Path
) -> None:
    given = left_by(method, tiny_pools, tiny_bert, around)
    for change in (none_right, others_right, another_right):
        pools = relabelled(tiny_pools, tmp_path / change.__name__, change)
        assert left_by(method, pools, tiny_bert, around) == given, change.__name__
