"""A sweep's trials as one flat table that any program can read."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from icalib.core.files import whole_file
from icalib.sweeps.folder import SweepFolder, decoded_params

_FIRST = ("trial", "seed", "state")
_LAST = (
    "seconds",
    "stages_computed",
    "stages_reused",
    "seconds_saved",
    "num_pseudo_pools",
    "num_pseudo_pairs",
    "pseudo_accuracy",
    "num_selected_intents",
    "error",
    "run",
    "started",
    "finished",
)


def write_sweep_csv(folder: SweepFolder) -> Path:
    """Write trials.csv: a row per trial and seed; a column per setting, a metric (`validation/F1`) and a fact.

    Raises:
        StorageError: the disk is full or can't be written.
    """
    rows = folder.trials().to_pylist()
    params, metrics = [_params(row) for row in rows], [_metrics(row) for row in rows]
    names = dict.fromkeys(name for group in (*params, *metrics) for name in group)
    path = folder.path / "trials.csv"
    with whole_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, (*_FIRST, *names, *_LAST), extrasaction="ignore")
        writer.writeheader()
        for row, own_params, own_metrics in zip(rows, params, metrics, strict=True):
            writer.writerow({**row, **_stage_facts(row), **own_params, **own_metrics})
    return path


def _params(row: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers and texts as they are, anything else as JSON."""
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in decoded_params(row["params"] or []).items()
    }


def _metrics(row: Mapping[str, Any]) -> dict[str, float]:
    return {f"{metric['split']}/{metric['name']}": metric["value"] for metric in row["metrics"] or []}


def _stage_facts(row: Mapping[str, Any]) -> dict[str, float]:
    stages = row["stages"] or []
    reused = [stage["seconds"] for stage in stages if stage["reused"]]
    return {
        "stages_computed": len(stages) - len(reused),
        "stages_reused": len(reused),
        "seconds_saved": sum(reused),
    }
