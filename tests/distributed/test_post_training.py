"""Post-training as a stage of real runs: kept, shared, shown in the curves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from distributed.runs import Silent, small_settings, surroundings
from torch import Tensor

from icalib.core.stage_cache import Stage
from icalib.data.pools import read_pool_set
from icalib.methods.composition import Method
from icalib.models.checkpoint import read_weights
from icalib.pipeline.run import run, set_up, stage_cache
from icalib.reports.tensorboard import write_tensorboard

pytestmark = pytest.mark.ray
QUICK = {"post_training.training.epochs": 2, "post_training.training.precision": "fp32"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def start_of(name: str, data: Path, backbone: Path, runs: Path, *, seed: int, labelled: float, **changes: Any) -> Stage:
    """What a method starts from: its post-training, done or reused."""
    settings = small_settings(name, data, backbone, **{**QUICK, **changes})
    settings = settings.model_copy(update={"seed": seed, "labelled": labelled})
    around = surroundings(runs, Silent())
    assert isinstance(settings.settings, Method)
    _, parts = set_up(settings, settings.settings, read_pool_set(data), around, stage_cache(around))
    assert parts.start is not None
    return parts.start


def test_a_bert_fp_run_shows_its_post_training_and_keeps_none_of_its_heads(
    local_ray: None, runs: Path, tiny_pools: Path, tiny_bert: Path
) -> None:
    finished = run(small_settings("bert-fp", tiny_pools, tiny_bert, **QUICK), surroundings(runs, Silent()))
    assert [stage["name"] for stage in finished.stages][:3] == ["tokens", "post-training", "teacher"]
    curve = [row for row in finished.training().to_pylist() if row["stage"] == "post_training"]
    shown = {row["tag"] for row in curve if row["split"] == "validation"}
    assert {"held_out/utterance_relevance/accuracy", "held_out/masked_words/loss"} <= shown
    assert (write_tensorboard(finished) / "round_00/validation/events.out.tfevents.post_training").is_file()
    start = Path(next(stage["path"] for stage in finished.stages if stage["name"] == "post-training")) / "checkpoint"
    assert {name.split(".")[0] for name in read_weights(start)} == {"encoder"}
    final = read_weights(finished.path / "checkpoints" / "final")
    assert {name.split(".")[0] for name in final} == {"encoder", "answer_head"}


def test_seeds_fractions_and_methods_share_a_post_training(
    local_ray: None, runs: Path, tiny_pools: Path, tiny_bert: Path
) -> None:
    first = start_of("bert-fp", tiny_pools, tiny_bert, runs, seed=1, labelled=0.3)
    again = start_of("bert-fp", tiny_pools, tiny_bert, runs, seed=2, labelled=0.5, similarity_start="together")
    assert (again.digest, again.reused) == (first.digest, True)


def test_the_default_is_shared_whatever_head_and_regime(
    local_ray: None, runs: Path, tiny_pools: Path, tiny_bert: Path
) -> None:
    first = start_of("bert", tiny_pools, tiny_bert, runs, seed=1, labelled=0.3)
    for name in ("tsst", "gpf-bert", "icast"):
        other = start_of(name, tiny_pools, tiny_bert, runs, seed=2, labelled=0.5)
        assert (other.digest, other.reused) == (first.digest, True)


@pytest.mark.long
def test_the_shards_of_zero_learn_the_questions_too(
    local_ray: None, runs: Path, tiny_pools: Path, tiny_bert: Path
) -> None:
    changes = {
        "post_training": "utterance-order",
        "post_training.masked_word_weight": 1.0,
        "post_training.training.learning_rate": 1e-3,
    }

    def weights(zero_stage: int) -> dict[str, Tensor]:
        stage = {"post_training.training.zero_stage": zero_stage}
        start = start_of("bert", tiny_pools, tiny_bert, runs, seed=1, labelled=0.3, **changes, **stage)
        return read_weights(start.path / "checkpoint")

    whole, sharded = weights(0), weights(3)
    assert whole.keys() == sharded.keys()
    for name, tensor in whole.items():
        if not name.endswith("key.bias"):  # softmax ignores it: its gradient is rounding, which Adam blows up
            assert (tensor - sharded[name]).abs().max() < 2e-4, name
