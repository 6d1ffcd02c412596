from __future__ import annotations

import pytest
from unit.reports.fake_runs import write_runs

from icalib.core.run_folder import RunFolder


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RunFolder]:
    """bm25, tsst and icast with two seeds each."""
    return write_runs(tmp_path_factory.mktemp("reports"))
