from __future__ import annotations

from collections.abc import Iterator

import pytest

from icalib.distributed import session


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    """A local Ray of two CPUs."""
    session.start(num_cpus=2)
    yield
    session.stop()
