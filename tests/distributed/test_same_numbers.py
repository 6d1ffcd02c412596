"""What how much there is to work with must not change."""

from __future__ import annotations

from pathlib import Path

import pytest
from distributed.drivers import ON_RAY
from helpers.runs import run_context, small_settings
from torch import Tensor

from icalib.core.stage_cache import StageCache
from icalib.data.pools import read_pool_set
from icalib.models.checkpoint import read_weights
from icalib.pipeline.run import stages_of, start

pytestmark = [pytest.mark.ray, pytest.mark.nightly]


def test_the_shards_of_zero_learn_the_questions_too(
    local_ray: None, tmp_path: Path, tiny_pools: Path, tiny_bert: Path
) -> None:
    def weights(zero_stage: int) -> dict[str, Tensor]:
        changes = {
            "post_training": "utterance-order",
            "post_training.masked_word_weight": 1.0,
            "post_training.training.epochs": 2,
            "post_training.training.precision": "fp32",
            "post_training.training.learning_rate": 1e-3,
            "post_training.training.zero_stage": zero_stage,
        }
        settings = small_settings("bert", tiny_pools, tiny_bert, **changes)
        context, pool_set = run_context(tmp_path, executor=ON_RAY), read_pool_set(tiny_pools)
        stages = stages_of(settings, pool_set, context, StageCache(tmp_path / ".cache"))
        first = start(stages, settings.settings, pool_set).start
        assert first is not None
        return read_weights(first.path / "checkpoint")

    whole, sharded = weights(0), weights(3)
    assert whole.keys() == sharded.keys()
    for name, tensor in whole.items():
        if not name.endswith("key.bias"):  # softmax ignores it: its gradient is rounding, which Adam blows up
            assert (tensor - sharded[name]).abs().max() < 2e-4, name
