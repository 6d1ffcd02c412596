from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
from helpers.tiny_models import tiny_ranker

from icalib.core.files import write_json
from icalib.data.pools import as_pools, read_rows
from icalib.models.checkpoint import save_ranker
from icalib.parts.cost import measure_costs
from icalib.parts.loaded import LoadedMembers
from icalib.parts.sum import PARTS_FILE, SumOfParts
from icalib.uncertainty.estimator import AbstractEstimator, Deterministic, MCDropout


def load(*members: tuple[Path, AbstractEstimator.Config]) -> LoadedMembers:
    return LoadedMembers.load(
        members, with_intents=False, precision="fp32", max_tokens=4096, device=torch.device("cpu")
    )


@pytest.fixture
def checkpoint(tiny_bert: Path, tmp_path: Path) -> Path:
    """The folder of a member that is a cross-encoder alone."""
    ranker = tiny_ranker(tiny_bert)
    save_ranker(tmp_path / "cross", ranker.config, ranker.state_dict())
    write_json(tmp_path / PARTS_FILE, SumOfParts.alone("cross").model_dump(mode="json"))
    return tmp_path


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
    ranker = one.sums[0].cross
    assert ranker is not None
    assert single.num_parameters == sum(p.numel() for p in ranker.parameters())
