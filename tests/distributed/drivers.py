"""Runs in processes of their own, to be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from helpers.runs import ONE_WORKER

from icalib.core.run_folder import RunFolder
from icalib.distributed.executor import RayExecutor
from icalib.pipeline.config import RunConfig

ON_RAY = RayExecutor(ONE_WORKER)

_RUN = """
import sys
from pathlib import Path
from distributed.drivers import ON_RAY
from helpers.runs import run_context
from icalib.distributed import session
from icalib.pipeline.config import RunConfig
from icalib.pipeline.run import run
settings = RunConfig.model_validate_json(Path(sys.argv[1]).read_text())
session.start(num_cpus=2)
run(settings, run_context(Path(sys.argv[2]), executor=ON_RAY))
session.stop()
"""


def start_run(settings: RunConfig, runs: Path, address: str = "") -> subprocess.Popen[bytes]:
    """A run on the cluster at an address, else on a local Ray of its own."""
    runs.mkdir(parents=True, exist_ok=True)
    file = runs / "settings.json"
    file.write_text(settings.model_dump_json())
    return subprocess.Popen(
        [sys.executable, "-c", _RUN, str(file), str(runs)],
        env={**os.environ, "RAY_ADDRESS": address},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def finish_run(settings: RunConfig, runs: Path, address: str = "") -> RunFolder:
    assert start_run(settings, runs, address).wait(400) == 0
    (config,) = runs.glob("test/*/config.yaml")
    return RunFolder.open(config.parent)


def kill_when(settings: RunConfig, runs: Path, moment: Callable[[], bool], address: str = "") -> None:
    """Start a run and kill -9 its driver at a moment; a local cluster goes with it."""
    driver = start_run(settings, runs, address)
    kill_at(driver, moment)


def kill_at(driver: subprocess.Popen[bytes], moment: Callable[[], bool]) -> None:
    """Kill -9 a driver at a moment, or when the moment is waited for in vain."""
    try:
        wait_for(moment, lambda: driver.poll() is None)
    finally:
        with suppress(ProcessLookupError):  # it was over before
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()


def wait_for(moment: Callable[[], bool], goes_on: Callable[[], bool], seconds: float = 400) -> None:
    """Return when the moment comes; fail if what it is awaited of is over before."""
    deadline = time.monotonic() + seconds
    while not moment():
        assert goes_on(), "it was over before the moment came"
        assert time.monotonic() < deadline
        time.sleep(0.02)
