"""A whole run by Ray Train, DeepSpeed and Ray tasks, with the numbers of this process: what `make test` has of a Ray.

test_executors.py (slow) does the same with every method.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from distributed.drivers import ON_RAY
from distributed.recording import Recording, check_alike, map_again
from helpers.runs import CPU, run_context, small_settings

from icalib.parts.job import ColumnJob
from icalib.parts.sum import SumJob
from icalib.pipeline.run import run
from icalib.stages.executor import LocalExecutor
from icalib.stages.tokens import TokenizeJob

pytestmark = pytest.mark.ray

SHORT = {"domain_pretraining": None, "regime.training.epochs": 1, "scoring.pools_per_shard": 16}


@pytest.mark.nightly
def test_a_local_ray_starts_though_the_user_imported_ray_first() -> None:
    started = (
        "import ray; from icalib.distributed import session; session.start(num_cpus=1); print(ray.nodes()[0]['Alive'])"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    printed = subprocess.run(
        [sys.executable, "-c", started], env=environment, capture_output=True, text=True, timeout=120
    )
    assert printed.stdout.splitlines()[-1:] == ["True"], printed.stderr


def test_a_run_by_ray_is_that_of_this_process(
    local_ray: None, tiny_pools: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    settings = small_settings("mc-dropout", tiny_pools, tiny_bert, **SHORT)
    by_ray = Recording(ON_RAY)
    runs = [
        run(settings, run_context(tmp_path / name, executor=executor))
        for name, executor in (("ray", by_ray), ("here", LocalExecutor(CPU, num_threads=1)))
    ]
    check_alike(*runs)
    assert [type(job) for job, _ in by_ray.mapped] == [TokenizeJob, *[ColumnJob, SumJob] * 2]  # validation and test
    for job, folder in by_ray.mapped:
        map_again(job, folder, tmp_path)
    probs = (torch.tensor(run.predictions("test")["prob"].to_numpy()) for run in runs)
    torch.testing.assert_close(*probs, rtol=1e-5, atol=1e-6)
