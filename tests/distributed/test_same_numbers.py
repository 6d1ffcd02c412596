"""What how much there is to work with must not change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from distributed.drivers import ON_RAY
from helpers.runs import ONE_WORKER, prediction_digest, run_context, small_settings
from torch import Tensor

from icalib.core.run_folder import RunFolder
from icalib.core.stage_cache import StageCache
from icalib.data.pools import read_pool_set
from icalib.distributed.executor import RayExecutor
from icalib.models.checkpoint import read_weights
from icalib.pipeline.run import RunSettings, run, stages_of, start

pytestmark = [pytest.mark.ray, pytest.mark.nightly]


@pytest.fixture(scope="module")
def settings(tiny_pools: Path, tiny_bert: Path) -> RunSettings:
    return small_settings("icast", tiny_pools, tiny_bert)


@pytest.fixture(scope="module")
def icast(local_ray: None, settings: RunSettings, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return run(settings, run_context(tmp_path_factory.mktemp("runs"), executor=ON_RAY))


def test_the_number_of_scorers_changes_nothing(icast: RunFolder, settings: RunSettings, tmp_path: Path) -> None:
    moved = tmp_path / ".cache"
    moved.mkdir()
    for stage in icast.stages:  # training is shared, every score is computed anew by one worker
        if "scores" not in stage["name"]:
            source = Path(stage["path"])
            (moved / source.name).symlink_to(source)
    one_scorer = RayExecutor(replace(ONE_WORKER, num_scorers=1))
    again = run(settings, run_context(tmp_path, executor=one_scorer))
    assert prediction_digest(again) == prediction_digest(icast)
    assert again.round_summaries() == icast.round_summaries()


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
