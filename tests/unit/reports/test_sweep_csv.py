from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from unit.reports.fake_sweeps import HOSTILE, write_published, write_sampled, write_trials

from icalib.reports.sweep_csv import write_sweep_csv
from icalib.sweeps.folder import SweepFolder


def _read(folder: SweepFolder) -> list[dict[str, str]]:
    with write_sweep_csv(folder).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_rows_are_those_of_the_record(tmp_path: Path) -> None:
    folder = write_published(tmp_path)
    for flat, row in zip(_read(folder), folder.trials().to_pylist(), strict=True):
        assert (int(flat["trial"]), int(flat["seed"]), flat["state"]) == (row["trial"], row["seed"], row["state"])
        (param,) = row["params"]
        assert flat[param["name"]] == param["value"]
        for metric in row["metrics"]:
            assert float(flat[f"validation/{metric['name']}"]) == metric["value"]
        reused = [stage for stage in row["stages"] if stage["reused"]]
        assert int(flat["stages_reused"]) == len(reused)
        assert int(flat["stages_computed"]) == len(row["stages"]) - len(reused)
        assert float(flat["seconds_saved"]) == pytest.approx(sum(stage["seconds"] for stage in reused))


def test_what_a_trial_lacks_is_empty(tmp_path: Path) -> None:
    rows = _read(write_sampled(tmp_path))
    assert rows[4]["state"] == "failed"
    assert rows[4]["error"] == HOSTILE
    assert rows[4]["validation/R@1"] == ""
    assert rows[-1]["state"] == "running"
    assert rows[-1]["seconds"] == rows[-1]["finished"] == rows[-1]["num_pseudo_pools"] == ""


def test_texts_stand_bare_and_lists_as_json(tmp_path: Path) -> None:
    folder = write_trials(tmp_path, [({"kernel": 'a "b", c', "layers": [1, 2]}, 0.5), ({"kernel": True}, 0.6)])
    first, second = _read(folder)
    assert first["kernel"] == 'a "b", c'
    assert json.loads(first["layers"]) == [1, 2]
    assert (second["kernel"], second["layers"]) == ("true", "")


def test_a_sweep_without_trials_has_a_header_alone(tmp_path: Path) -> None:
    folder = write_trials(tmp_path, [])
    assert _read(folder) == []
    assert (folder.path / "trials.csv").read_text(encoding="utf-8").startswith("trial,seed,state,seconds")
