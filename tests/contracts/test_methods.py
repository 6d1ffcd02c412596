"""What every method must do; a new file in icalib/methods, or in a package outside of it, is discovered."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from helpers.device import score_on_meta, update_on_meta
from helpers.discovery import methods
from helpers.tiny_training import train_and_score

from icalib.core.component import described
from icalib.data.encoding import TokenStore
from icalib.data.pools import read_pool_set
from icalib.encoders.sam import SAM
from icalib.heads.polya_gamma import PolyaGammaHead
from icalib.methods.catalogue import describe, load_method

NAMES = methods()


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_has_help_and_the_method_a_line(name: str) -> None:
    assert describe(name).endswith((".", ")"))
    lines = list(described(load_method(name)))
    assert lines
    assert [path for path, _, text in lines if not text.strip()] == []


@pytest.mark.parametrize("name", NAMES)
def test_two_steps_and_a_scored_pool_on_a_tiny_backbone_and_both_without_waiting_for_a_device(
    name: str, tiny_bert: Path, tiny_pools: Path, store: TokenStore
) -> None:
    method = load_method(name)
    run = train_and_score(method, tiny_bert, store, intents=tuple(read_pool_set(tiny_pools).intents))
    weights = run.ranker.state_dict()
    assert run.num_steps >= 2
    assert all(torch.isfinite(tensor).all() for tensor in weights.values())
    learnt = [f"answer_head.{name}" for name, _ in run.ranker.answer_head.named_parameters()]
    assert any(not torch.equal(run.before[name], weights[name]) for name in learnt)
    views = method.regime.view_rule() is not None
    assert run.scores.num_rows == 4 * (1 + views)
    assert (run.intents is not None) == views
    # Pólya-Gamma variables are drawn on the CPU, the same for every device; a packed LSTM needs its lengths there.
    if not isinstance(method.head, PolyaGammaHead.Config) and not isinstance(method.encoder, SAM.Config):
        assert score_on_meta(run.context, store, (3,), with_intents=views) == 0
        assert update_on_meta(run.ranker, run.curriculum)
