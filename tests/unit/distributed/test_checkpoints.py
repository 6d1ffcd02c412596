"""Checkpoints that a worker which is alone keeps itself, and who can resume from whose; no Ray is started."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from icalib.core.stage_cache import RESUME
from icalib.distributed import training
from icalib.distributed.checkpoints import STATE, OwnCheckpoints, has_ray_checkpoints, last_name
from icalib.pipeline.resources import Resources


def writer(text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "ds").mkdir()
        (folder / "ds" / "weights.pt").write_text(text)
        (folder / STATE).write_text(text)

    return write


def test_the_last_checkpoint_is_kept(tmp_path: Path) -> None:
    checkpoints = OwnCheckpoints(tmp_path)
    with checkpoints.last() as none:
        assert none is None
    for step in (9, 10, 10, 100):
        checkpoints.save(writer(f"{step}"), step)
        with checkpoints.last() as folder:
            assert folder is not None
            assert (folder / "ds" / "weights.pt").read_text() == f"{step}"
    assert [path.name for path in (tmp_path / RESUME).iterdir()] == ["checkpoint_000000100"]


def test_a_checkpoint_whose_worker_died_is_passed_over(tmp_path: Path) -> None:
    checkpoints = OwnCheckpoints(tmp_path)
    checkpoints.save(writer("whole"), 5)
    half = tmp_path / RESUME / "checkpoint_000000010"
    half.mkdir()
    (half / "ds").touch()
    with checkpoints.last() as folder:
        assert folder == tmp_path / RESUME / "checkpoint_000000005"
    checkpoints.save(writer("again"), 10)
    with checkpoints.last() as folder:
        assert folder == half


@pytest.mark.parametrize(
    ("workers", "use_gpu", "one_node", "by_ray_before", "alone"),
    [
        (1, False, True, False, True),
        (1, False, True, True, False),
        (1, False, False, False, False),
        (1, True, True, False, False),
        (2, False, True, False, False),
    ],
)
def test_ray_train_runs_what_is_not_alone_or_was_its_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    workers: int, use_gpu: bool, one_node: bool, by_ray_before: bool, alone: bool,
) -> None:  # fmt: skip
    OwnCheckpoints(tmp_path).save(writer("own"), 5)
    if by_ray_before:
        (tmp_path / RESUME / "checkpoint_2026-11-25_03-28-42.123456").mkdir()
    assert (has_ray_checkpoints(tmp_path), last_name(tmp_path)[11:15]) == (
        by_ray_before,
        "2026" if by_ray_before else "0000",
    )
    ran: list[str] = []
    monkeypatch.setattr(training, "alive_nodes", lambda: ["node"] * (1 if one_node else 2))
    monkeypatch.setattr(training, "_run_alone", lambda *arguments: ran.append("alone"))
    monkeypatch.setattr(training, "_run_by_ray_train", lambda *arguments: ran.append("ray"))
    training._attempt(None, tmp_path, Resources(workers, use_gpu, 1, num_scorers=1))  # type: ignore[arg-type]
    assert ran == ["alone" if alone else "ray"]
