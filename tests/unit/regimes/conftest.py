from __future__ import annotations

from pathlib import Path

import pytest
from helpers.tiny_models import token_store

from icalib.data.encoding import TokenStore
from icalib.data.pools import read_pool_set


@pytest.fixture(scope="session")
def tokens(tiny_pools: Path, tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of train.arrow and validation.arrow of the tiny corpus."""
    folder = tmp_path_factory.mktemp("tokens")
    for split in ("train", "validation"):
        token_store(tiny_pools, split, tiny_bert, folder)  # type: ignore[arg-type]
    return folder


@pytest.fixture(scope="session")
def store(tokens: Path) -> TokenStore:
    """Tokens of the training pools."""
    return TokenStore(tokens / "train.arrow")


@pytest.fixture(scope="session")
def intents(tiny_pools: Path) -> tuple[str, ...]:
    """The corpus' intents."""
    return read_pool_set(tiny_pools).intents
