from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from helpers.stores import Machines

    from icalib.data.encoding import TokenStore

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny models lose more by waking threads than they gain
settings.register_profile("shared machine", deadline=None)  # an example may take long where others compute, too
settings.load_profile("shared machine")
_COLLECTOR = gc.get_threshold()


@pytest.fixture(autouse=True)
def usual_collector() -> None:
    """Garbage is collected as often as in other processes: the command line, which tests call in theirs, does it more
    rarely, and they measure memory.
    """
    gc.set_threshold(*_COLLECTOR)


@pytest.fixture(scope="session")
def tiny_pools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a small simulated corpus, prepared: pools of 4 candidates, 12 intents at most."""
    from helpers.tiny_models import write_tiny_pools

    return write_tiny_pools(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session")
def tiny_bert(tiny_pools: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a random two-layer BERT, 32 wide, 128 positions, whose vocabulary is that of `tiny_pools`."""
    from helpers.tiny_models import pool_texts, write_tiny_bert

    return write_tiny_bert(tmp_path_factory.mktemp("bert"), pool_texts(tiny_pools))


@pytest.fixture(scope="session")
def tokens(tiny_pools: Path, tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of train.arrow and validation.arrow of the tiny corpus."""
    from helpers.tiny_models import token_store

    folder = tmp_path_factory.mktemp("tokens")
    for split in ("train", "validation"):
        token_store(tiny_pools, split, tiny_bert, folder)  # type: ignore[arg-type]
    return folder


@pytest.fixture(scope="session")
def store(tokens: Path) -> TokenStore:
    """Tokens of the training pools."""
    from icalib.data.encoding import TokenStore

    return TokenStore(tokens / "train.arrow")


@pytest.fixture(scope="session")
def intents(tiny_pools: Path) -> tuple[str, ...]:
    """The corpus' intents."""
    from icalib.data.pools import read_pool_set

    return read_pool_set(tiny_pools).intents


@pytest.fixture(scope="session")
def tiny_roberta(tiny_pools: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a random two-layer RoBERTa, 32 wide, 128 positions for tokens."""
    from helpers.tiny_models import pool_texts, write_tiny_roberta

    return write_tiny_roberta(tmp_path_factory.mktemp("roberta"), pool_texts(tiny_pools))


@pytest.fixture
def gathers_as_workers_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings in this process gather only what several workers could send to each other."""
    from helpers.gathering import sent

    monkeypatch.setattr("icalib.training.local_engine.LocalEngine.gather", lambda self, value: [sent(value)])


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machines:
    """Machines that share an object store; none of them waits before it tries again."""
    from helpers.stores import Machines

    monkeypatch.setattr("icalib.core.storage.time.sleep", lambda seconds: None)
    return Machines(tmp_path, monkeypatch)


@pytest.fixture
def icalib(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command line in this process; gives the exit code, standard output and standard error."""
    from icalib.cli import main

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["icalib", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        return int(stop.value.code or 0), out, err

    return call
