from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icalib.core.files import write_json
from icalib.core.job import Artifact
from icalib.data.encoding import TokenPool
from icalib.parts.fit import OffsetJob
from icalib.parts.job import PartName
from icalib.parts.sum import PARTS_FILE, PartWeight, SumOfParts
from icalib.scoring.column import Column, column_table
from icalib.scoring.offsets import Offsets
from icalib.scoring.scores import intent_shard

SIZES = {0: 2, 1: 3, 2: 2, 5: 4, 6: 2, 9: 3}
WEIGHTS: dict[PartName, float] = {"similarity": 2.0, "intent": 0.5}


def pools_of(rows: Sequence[int]) -> list[TokenPool]:
    ids = np.zeros(1, np.int32)
    return [TokenPool(row, f"p{row}", "d", [ids], [[]], [ids] * SIZES[row], -1) for row in rows]


def value(part: PartName, row: int, view: str) -> np.ndarray:
    """Each pair's mean over two passes; the part of intents is 0 in the plain view."""
    if part == "intent" and view == "plain":
        return np.zeros(SIZES[row])
    return np.arange(SIZES[row]) + row + {"similarity": 0.25, "intent": 0.5}[part]


def write_column(folder: Path, part: PartName, shards: Sequence[Sequence[int]], *, intents: bool = False) -> Artifact:
    folder.mkdir(parents=True)
    view = "plain" if part == "similarity" else "intent"
    for number, rows in enumerate(shards):
        mean_N = np.concatenate([np.zeros(0), *(value(part, row, view) for row in rows)])
        passes = Column(np.stack([mean_N - 1, mean_N + 1]), np.zeros((2, len(mean_N))))
        pq.write_table(column_table(pools_of(rows), {view: passes}), folder / f"column-{number:06d}.parquet")
        if intents:
            found = intent_shard(pools_of(rows), [[[row]] for row in rows])
            pq.write_table(found, folder / f"intents-{number:06d}.parquet")
    return Artifact(path=folder, digest="")


def write_pseudo_labels(folder: Path, shards: Sequence[Sequence[int]]) -> Artifact:
    folder.mkdir()
    for number, rows in enumerate(shards):
        ids = pa.array([f"p{row}" for row in rows for _ in range(2)], pa.string())  # a row a pair
        pq.write_table(pa.table({"pool_id": ids}), folder / f"pseudo-{number:06d}.parquet")
    return Artifact(path=folder, digest="")


@pytest.fixture
def job(tmp_path: Path) -> OffsetJob:
    parts = tuple(PartWeight(name=name, weight=weight) for name, weight in WEIGHTS.items())
    write_json(tmp_path / PARTS_FILE, SumOfParts(parts=parts, offset=-1.0).model_dump(mode="json"))
    folds = [write_column(tmp_path / f"fold-{n}", "similarity", [rows]) for n, rows in enumerate([[1], [0]])]
    return OffsetJob(
        fit=Artifact(path=tmp_path / PARTS_FILE, digest=""),
        labelled={"similarity": tuple(folds), "intent": (write_column(tmp_path / "i", "intent", [[0, 1]]),)},
        validation={
            part: write_column(tmp_path / f"v-{part}", part, [[2], [0, 1]], intents=part == "intent")
            for part in WEIGHTS
        },
        unlabelled={part: write_column(tmp_path / f"u-{part}", part, [[2, 5], [6], [9]]) for part in WEIGHTS},
        pseudo_labels=write_pseudo_labels(tmp_path / "pseudo", [[5], [], [9]]),
    )


def computed(job: OffsetJob, folder: Path) -> Mapping[str, Offsets]:
    folder.mkdir()
    job.compute(folder, "offsets", lambda event: None)
    return {name: Offsets.load(folder / f"{name}.parquet") for name in ("train", "validation")}


def expected(row: int, view: str) -> np.ndarray:
    return -1.0 + sum(
        weight * value(part, row, "plain" if part == "similarity" else view) for part, weight in WEIGHTS.items()
    )


@pytest.mark.parametrize("files_at_once", [1, 2, 16])
def test_offsets_are_those_of_labelled_and_selected_pools(
    job: OffsetJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files_at_once: int
) -> None:
    monkeypatch.setattr("icalib.parts.fit._FILES_AT_ONCE", files_at_once)
    train = computed(job, tmp_path / "offsets")["train"]
    assert train.row_P.tolist() == [0, 1, 5, 9]
    for view in ("plain", "intent"):
        found = train.of_pools(pools_of([5, 0, 9, 1]), view)
        assert found == pytest.approx(np.concatenate([expected(row, view) for row in (5, 0, 9, 1)]))
        assert train.of_pair(9, 2, view) == pytest.approx(expected(9, view)[2])
    assert train.of_intents(pools_of([0])) is None
    with pytest.raises(KeyError, match="row 6 has no offsets"):
        train.of_pair(6, 0, "plain")


def test_validation_has_the_intents_that_were_predicted(job: OffsetJob, tmp_path: Path) -> None:
    validation = computed(job, tmp_path / "offsets")["validation"]
    assert validation.of_intents(pools_of([2, 0])) == [[[2]], [[0]]]
    assert validation.of_pools(pools_of([1]), "intent") == pytest.approx(expected(1, "intent"))


def test_a_teacher_has_offsets_of_labelled_pools_alone(job: OffsetJob, tmp_path: Path) -> None:
    teacher = job.model_copy(update={"unlabelled": {}, "pseudo_labels": None})
    assert computed(teacher, tmp_path / "offsets")["train"].row_P.tolist() == [0, 1]
