from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.runs import Silent, run_context

from icalib.pipeline.run import RunContext


@pytest.fixture(scope="module", autouse=True)
def one_core() -> Iterator[None]:
    """What `--executor local` takes, as tiny models lose more by waking threads than they gain."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("icalib.stages.executor.usable_cores", lambda: 1)
        yield


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the runs of a module's tests, which share its stages."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def around(runs: Path) -> RunContext:
    """Runs in that folder, without progress."""
    return run_context(runs, Silent())
