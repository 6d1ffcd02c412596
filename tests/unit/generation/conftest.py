from __future__ import annotations

from pathlib import Path

import pytest
from helpers.tiny_language_models import Kind, write_tiny_language_model
from helpers.tiny_models import pool_texts


@pytest.fixture(scope="session", params=["bart", "t5"])
def language_model(request: pytest.FixtureRequest, tiny_pools: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny random BART or T5."""
    kind: Kind = request.param
    return write_tiny_language_model(tmp_path_factory.mktemp(kind), kind, pool_texts(tiny_pools))
