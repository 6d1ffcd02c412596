"""What a run folder records doesn't depend on which stage ends first."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path

import pyarrow as pa
import pytest

from icalib.core.events import StageFinished, ignore
from icalib.core.run_folder import RunFolder
from icalib.pipeline.record import RunRecord

MEMBERS = ("member-1/teacher", "member-2/teacher", "member-10/teacher")


def finished(folder: Path, name: str) -> StageFinished:
    path = folder / name
    path.mkdir(parents=True)
    point = {"split": "train", "epoch": 1, "tag": "loss/answer", "value": float(len(name))}
    (path / "curve.json").write_text(json.dumps([{**point, "step": step} for step in (1, 2)]))
    (path / "result.json").write_text(json.dumps({"updates": len(name)}))
    return StageFinished(name, "teacher", 0, f"digest of {name}", path, 1.0, reused=False)


def curves(folder: Path, names: tuple[str, ...]) -> pa.Table:
    run = RunFolder(folder / "run")
    run.path.mkdir(parents=True)
    record = RunRecord(run, ignore)
    for name in ("teacher", *names):
        record(finished(folder / "stages", name))
    return run.training()


@pytest.mark.parametrize("order", list(permutations(MEMBERS)))
def test_the_learning_curves_of_members_are_the_same_in_whatever_order_they_end(
    tmp_path: Path, order: tuple[str, ...]
) -> None:
    expected = curves(tmp_path / "a", MEMBERS)
    assert expected["step"].to_pylist() == [1, 2, 8, 9, 8, 9, 8, 9]
    assert list(dict.fromkeys(expected["stage"].to_pylist())) == [
        "teacher", "member_1_teacher", "member_2_teacher", "member_10_teacher"
    ]  # fmt: skip
    assert curves(tmp_path / "b", order).equals(expected)


def test_a_stage_that_is_requested_again_has_one_learning_curve(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.path.mkdir(parents=True)
    record, stage = RunRecord(run, ignore), finished(tmp_path / "stages", "intent-encoder")
    record(stage)
    once = run.training()
    record(stage)
    assert run.training().equals(once)
