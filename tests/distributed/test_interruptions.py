"""Workers and drivers that die: the same command goes on and ends with the same numbers."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from distributed.drivers import finish_run, kill_when, wait_for
from helpers.runs import ONE_WORKER, outcome_digest, small_settings, table_digest
from helpers.score_jobs import score_job
from helpers.tiny_models import tiny_ranker, token_store

from icalib.core.events import ignore
from icalib.core.run_folder import RunFolder
from icalib.data.pools import read_pool_set
from icalib.distributed.executor import map_shards
from icalib.models.checkpoint import save_ranker
from icalib.pipeline.config import RunConfig
from icalib.uncertainty.estimator import MCDropout

pytestmark = pytest.mark.ray

LABELS = "rounds/1/pseudo_labels.parquet"


@pytest.fixture(scope="module")
def settings(tiny_pools: Path, tiny_bert: Path) -> RunConfig:
    return small_settings("icast", tiny_pools, tiny_bert, domain_pretraining=None)


@pytest.fixture(scope="module")
def undisturbed(settings: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return finish_run(settings, tmp_path_factory.mktemp("undisturbed"))


@pytest.mark.nightly
def test_a_driver_killed_inside_an_epoch_resumes_from_its_checkpoint(
    settings: RunConfig, undisturbed: RunFolder, tmp_path: Path
) -> None:
    def checkpointed() -> bool:
        return any(tmp_path.glob(".cache/teacher-*/ray/checkpoint_*/loop.json"))

    kill_when(settings, tmp_path, checkpointed)
    assert not any(tmp_path.glob(".cache/teacher-*/stage.json"))
    assert outcome_digest(finish_run(settings, tmp_path), LABELS) == outcome_digest(undisturbed, LABELS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.nightly)]
)
def test_a_signal_in_a_training_ends_the_command_with_the_line_that_says_how_to_resume(
    number: signal.Signals, code: int, tiny_pools: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    options = ["--data", tiny_pools, "--backbone", tiny_bert, "--runs", tmp_path, "--labelled", "0.5"]
    endless = ["--set", "regime.training.epochs=1000", "--set", "regime.training.patience=1000"]
    command = [sys.executable, "-m", "icalib", "run", "bert", *options, *endless]
    driver = subprocess.Popen(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # a shell's background jobs ignore SIGINT
    )
    try:
        wait_for(
            lambda: any(tmp_path.glob(".cache/teacher-*/progress.json")),
            lambda: driver.poll() is None or pytest.fail("".join(driver.communicate())),
        )
        driver.send_signal(number)
        out, err = driver.communicate(timeout=60)
    finally:
        driver.kill()
    assert driver.returncode == code
    assert "Run the same command again to resume" in err.splitlines()[-1]
    assert not any(word in out + err for word in ("Traceback", "***", "ray::"))


@pytest.mark.slow
def test_a_scoring_worker_killed_in_a_shard_loses_nothing(
    local_ray: None, tiny_pools: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    ranker = tiny_ranker(tiny_bert, intents=read_pool_set(tiny_pools).intents)
    save_ranker(tmp_path / "checkpoint", ranker.config, ranker.state_dict())
    token_store(tiny_pools, "train", tiny_bert, tmp_path)
    many_passes = MCDropout.Config(num_passes=20)  # time for a kill
    job = score_job(tmp_path, tmp_path / "checkpoint", estimator=many_passes, pools_per_shard=8)
    calm, stormy = tmp_path / "calm", tmp_path / "stormy"
    calm.mkdir()
    stormy.mkdir()
    map_shards(job, calm, ONE_WORKER, "scores", ignore)
    killed: list[int] = []
    over = threading.Event()

    def kill_one_scorer() -> None:
        while not killed and not over.is_set():
            for process in psutil.process_iter(["cmdline"]):
                if "ray::ColumnJob" in " ".join(process.info["cmdline"] or []):
                    process.kill()
                    killed.append(process.pid)
                    return
            time.sleep(0.01)

    killer = threading.Thread(target=kill_one_scorer)
    killer.start()
    map_shards(job, stormy, ONE_WORKER, "scores", ignore)
    over.set()
    killer.join()
    assert killed, "no scorer was seen, so nothing was tested"
    files = sorted(path.name for path in calm.iterdir())
    assert files == sorted(path.name for path in stormy.iterdir())
    assert table_digest(*(calm / name for name in files)) == table_digest(*(stormy / name for name in files))
