from __future__ import annotations

import sys
from pathlib import Path

import pytest
from helpers.tiny_models import token_store

from icalib.data.encoding import TokenStore

sys.path.insert(0, str(Path(__file__).parents[1] / "outside"))  # for the packages that the suites run on


@pytest.fixture(scope="session")
def store(tiny_pools: Path, tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    """The tokens of the training split."""
    return token_store(tiny_pools, "train", tiny_bert, tmp_path_factory.mktemp("tokens"))
