"""Jobs that end early: what only a user can mend or what was abandoned is tried once, and what else runs is stopped."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from helpers.failing_shards import FailingShards
from helpers.losses import HopelessLoss
from helpers.runs import ONE_WORKER
from helpers.train_jobs import train_job

from icalib.core.errors import Abandoned, DataError, IcalibError, SettingError
from icalib.core.events import EpochFinished, Event, Progress, ignore
from icalib.core.files import read_json
from icalib.core.stage_cache import RESUME
from icalib.distributed.executor import map_shards
from icalib.distributed.session import parallel_map
from icalib.distributed.training import _run_tasks, train
from icalib.inference.cholesky import NumericalError
from icalib.stages.resources import Resources

pytestmark = pytest.mark.ray

TWO_WORKERS = Resources(num_workers=2, use_gpu=False, cpus_per_worker=1, num_scorers=2)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        ("setting", SettingError, "^a setting that can't be$"),
        ("memory", IcalibError, r"GPU's memory ran out.*2.00 GiB.*`max_tokens_per_batch` \(it is 8192\).*accumulation"),
    ],
)
def test_what_only_a_user_can_fix_is_tried_once(
    local_ray: None,
    tiny_pools: Path,
    tiny_bert: Path,
    tmp_path: Path,
    error: Any,
    kind: type[IcalibError],
    message: str,
) -> None:
    trace = tmp_path / "trace"
    job = train_job(tiny_pools, tiny_bert, tmp_path, loss=HopelessLoss.Config(trace=trace, error=error))
    with pytest.raises(kind, match=message):
        train(job, tmp_path, ONE_WORKER, "teacher", ignore)
    assert trace.read_text().split() == [error]


@pytest.mark.nightly
def test_a_list_of_checkpoints_that_a_full_disk_cut_off_is_left_out(
    local_ray: None, tiny_pools: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    cut_off = tmp_path / RESUME / "checkpoint_manager_snapshot.json"
    cut_off.parent.mkdir()
    cut_off.touch()
    train(train_job(tiny_pools, tiny_bert, tmp_path), tmp_path, TWO_WORKERS, "teacher", ignore)
    assert read_json(tmp_path / "result.json")["world_size"] == 2


class Impatient:
    """Abandons a training after its first epoch."""

    def __init__(self) -> None:
        self.epochs = 0

    def __call__(self, event: Event) -> None:
        if isinstance(event, EpochFinished):
            self.epochs = max(point["epoch"] for point in event.points)
            raise Abandoned("seen enough")


@pytest.mark.nightly
def test_a_training_that_is_abandoned_ends_at_once_and_is_not_retried(
    local_ray: None, tiny_pools: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    impatient = Impatient()
    job = train_job(tiny_pools, tiny_bert, tmp_path, epochs=400, patience=400)
    with pytest.raises(Abandoned, match="was abandoned: seen enough"):
        train(job, tmp_path, TWO_WORKERS, "teacher", impatient)
    assert 1 <= impatient.epochs < 200
    assert not (tmp_path / "result.json").exists()
    short = job.model_copy(update={"training": job.training.model_copy(update={"epochs": 1})})
    train(short, tmp_path, TWO_WORKERS, "teacher", ignore)
    assert (tmp_path / "result.json").exists()  # nobody is stopped by what another consumer thought


class KillsController:
    """Kills -9 Ray Train's controller once its workers train."""

    def __init__(self) -> None:
        self.killed = 0

    def __call__(self, event: Event) -> None:
        if not self.killed and isinstance(event, Progress) and event.done:
            for process in psutil.Process().children(recursive=True):
                if "ray::TrainController" in " ".join(process.cmdline()):
                    process.kill()
                    self.killed += 1


@pytest.mark.nightly
def test_what_a_dead_controller_reserved_is_free_for_the_next_try(
    local_ray: None, tiny_pools: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    killer = KillsController()
    train(train_job(tiny_pools, tiny_bert, tmp_path, epochs=40, patience=40), tmp_path, TWO_WORKERS, "teacher", killer)
    assert killer.killed == 1
    assert read_json(tmp_path / "result.json")["world_size"] == 2


def no_factor() -> None:
    raise NumericalError("matrices have no Cholesky factor")


def no_memory() -> None:
    raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 9 bytes. Error code 12")


@pytest.mark.parametrize(
    ("task", "message"),
    [(no_factor, "^matrices have no Cholesky factor$"), (no_memory, r"^the machine's memory ran out.*`head\.support")],
)
def test_what_only_a_user_can_fix_in_a_posterior_is_told_alone(
    local_ray: None, tmp_path: Path, task: Callable[[], None], message: str
) -> None:
    with pytest.raises(IcalibError, match=message):
        _run_tasks(tmp_path, ONE_WORKER, [task])


@pytest.mark.nightly
def test_the_other_shards_of_a_failed_job_are_stopped(local_ray: None, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="a setting that can't be"):
        map_shards(FailingShards(), tmp_path, TWO_WORKERS, "scores", ignore)
    deadline = time.monotonic() + 30
    while ray.available_resources().get("CPU") != 2:
        assert time.monotonic() < deadline, "the other shard is still being computed"
        time.sleep(0.1)
    assert [path.name for path in tmp_path.iterdir()] == ["begun"]


def too_few(number: int) -> None:
    raise DataError(f"a response has {number} other responses", "Prepare more dialogues.")


def no_file(number: int) -> None:
    raise FileNotFoundError(number, "No such file")


def die(number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_task_whose_processes_die_is_an_error_that_users_can_read(local_ray: None) -> None:
    with pytest.raises(IcalibError, match=r"`die` failed on the nodes after 3 retries: .*died.*same command again"):
        list(parallel_map(die, [2]))


def test_an_error_of_a_task_is_raised_as_it_was(local_ray: None) -> None:
    """Without Ray's traceback in its text, and with its errno, by which a full disk is told from others."""
    with pytest.raises(DataError, match=r"^a response has 2 other responses") as found:
        list(parallel_map(too_few, [2]))
    assert type(found.value) is DataError
    with pytest.raises(FileNotFoundError) as missing:
        list(parallel_map(no_file, [2]))
    assert missing.value.errno == 2
