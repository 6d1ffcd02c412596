from __future__ import annotations

from pathlib import Path

import pytest
import torch
from helpers.tiny_models import ranker_config

from icalib.models.ranker import Ranker


@pytest.fixture(scope="session")
def ranker(tiny_bert: Path) -> Ranker:
    """A tiny ranker that separates turns and has heads for masked tokens and for a task."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = ranker_config(tiny_bert, turn_separators=True)
        return Ranker(config, masked_words=True, task_heads={"utterance_relevance": 3}).eval()
