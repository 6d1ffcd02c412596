"""What every generator of texts must do; a new one, of icalib or of a package outside of it, is discovered."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from helpers.discovery import default_config, discovered
from helpers.tiny_language_models import write_tiny_language_model
from helpers.tiny_models import pool_texts

from icalib.data.generated import TextKind
from icalib.data.pools import as_pools, read_rows
from icalib.data.schema import Pool
from icalib.data.selection import Selection
from icalib.generation.generator import AbstractGenerator
from icalib.generation.retrieval import gold, is_near_duplicate, training_rows

CPU = torch.device("cpu")
SELECTION = Selection(labelled_fraction=0.2)
WANTED: tuple[TextKind, ...] = get_args(TextKind)
OWNERS = discovered(AbstractGenerator)
every_generator = pytest.mark.parametrize("owner", OWNERS, ids=lambda owner: owner.__name__)


@pytest.fixture(scope="module")
def pools(tiny_pools: Path) -> list[Pool]:
    rows = training_rows(tiny_pools, SELECTION, "labelled")
    return list(as_pools(read_rows(tiny_pools, "train", rows)))[:3]


@pytest.fixture(scope="module")
def writer(tiny_pools: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint for the tasks that a generator's model learns."""
    return write_tiny_language_model(tmp_path_factory.mktemp("bart"), "bart", pool_texts(tiny_pools))


@every_generator
def test_answers_and_contexts_fit_their_pools_and_never_repeat_the_right_answer(
    owner: Any, tiny_pools: Path, pools: list[Pool], writer: Path
) -> None:
    made = built(owner, tiny_pools, writer)
    grey = made.grey_answers(pools, 2, seed=1)
    right = made.right_answers(pools, seed=1)
    contexts = made.contexts(pools, seed=1)
    assert len(grey) == len(right) == len(contexts) == len(pools)
    for pool, answers, rights, ours in zip(pools, grey, right, contexts, strict=True):
        assert len(answers) <= 2
        assert not any(is_near_duplicate(answer, gold(pool)) for answer in answers)
        assert len(rights) <= 1
        assert len(ours) == len(pool.candidates)
        assert ours[pool.label] == ()


@every_generator
def test_the_same_pools_and_seed_give_the_same_texts(
    owner: Any, tiny_pools: Path, pools: list[Pool], writer: Path
) -> None:
    one, other = (built(owner, tiny_pools, writer) for _ in range(2))
    assert one.grey_answers(pools, 2, seed=1) == other.grey_answers(pools, 2, seed=1)
    assert one.right_answers(pools, seed=1) == other.right_answers(pools, seed=1)
    assert one.contexts(pools, seed=1) == other.contexts(pools, seed=1)


def built(owner: Any, data: Path, writer: Path) -> AbstractGenerator:
    config: Any = default_config(owner)
    models = {task: writer for wanted in WANTED for task in config.fine_tuned_tasks(wanted)}
    return config.build(data=data, selection=SELECTION, models=models, device=CPU)
