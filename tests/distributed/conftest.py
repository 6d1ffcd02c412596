from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from icalib.distributed import session

# Ray's workers import the helpers, too.
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
# Ray's workers give way to other processes, to the other tests that run now, too: on two cores they would hardly run.
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    """A local Ray of two CPUs."""
    session.start(num_cpus=2)
    yield
    session.stop()
