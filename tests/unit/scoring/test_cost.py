from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
from helpers.tiny_models import ranker_config, tiny_ranker

from icalib.data.pools import as_pools, read_rows
from icalib.models.checkpoint import save_ranker
from icalib.models.ranker import Ranker
from icalib.parts.cost import measure_costs
from icalib.parts.loaded import LoadedMembers
from icalib.uncertainty.estimator import AbstractEstimator, Deterministic, MCDropout


def load(*members: tuple[Path, AbstractEstimator.Config]) -> LoadedMembers:
    return LoadedMembers.load(
        members, with_intents=False, precision="fp32", max_tokens=4096, device=torch.device("cpu")
    )


@pytest.fixture
def checkpoint(tiny_bert: Path, tmp_path: Path) -> Path:
    ranker = tiny_ranker(tiny_bert)
    save_ranker(tmp_path / "plain", ranker.config, ranker.state_dict())
    return tmp_path / "plain"


def test_ten_passes_cost_several_times_one_and_share_the_model(
    checkpoint: Path, tiny_pools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.perf_counter", time.process_time)  # others may compute meanwhile
    pools = list(as_pools(read_rows(tiny_pools, "test", range(6))))
    one = load((checkpoint, Deterministic.Config()))
    ten = load((checkpoint, Deterministic.Config()), (checkpoint, MCDropout.Config(num_passes=10)))
    threads = torch.get_num_threads()
    single, double = measure_costs([("one", one), ("ten", ten)], pools, repeats=3)
    assert torch.get_num_threads() == threads
    assert single.num_pairs == sum(len(pool.candidates) for pool in pools)
    assert single.ratio == single.ratio_low == single.ratio_high == 1
    assert double.ratio_low <= double.ratio <= double.ratio_high
    assert 3 < double.ratio < 40  # eleven passes, and what is done once for all of them
    assert single.milliseconds_per_pair == pytest.approx(1000 * single.seconds / single.num_pairs)
    assert single.num_parameters == double.num_parameters  # one model, read twice
    assert single.num_parameters == sum(p.numel() for p in one.contexts[0].ranker.parameters())


@pytest.mark.parametrize("learns", [True, False])
def test_a_bi_encoder_that_ranks_alone_is_what_counts(tiny_bert: Path, tmp_path: Path, learns: bool) -> None:
    config = ranker_config(tiny_bert).model_copy(update={"similarity_start": "separate"})
    ranker = Ranker(config)
    ranker.answer_head.start_at_mean()
    save_ranker(tmp_path, config, ranker.state_dict())
    members = LoadedMembers.load(
        [(tmp_path, Deterministic.Config())],
        with_intents=False,
        precision="fp32",
        max_tokens=4096,
        device=torch.device("cpu"),
        learns_bi_encoder=learns,
    )
    assert ranker.bi_encoder is not None
    weights = sum(parameter.numel() for parameter in ranker.bi_encoder.parameters())
    buffers = sum(buffer.numel() for buffer in ranker.buffers())
    assert members.num_parameters == (weights if learns else 0)
    assert members.num_fixed == buffers + (0 if learns else weights)
