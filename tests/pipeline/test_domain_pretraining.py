"""Domain pre-training as a stage of real runs: kept, shared, shown in the curves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helpers.runs import Silent, run_context, small_settings

from icalib.core.stage_cache import Stage
from icalib.data.pools import read_pool_set
from icalib.data.prepare import PrepareSettings, prepare
from icalib.data.simulate import simulate
from icalib.models.checkpoint import read_weights
from icalib.pipeline.run import run, stages_of

QUICK = {"domain_pretraining.training.epochs": 2, "domain_pretraining.training.precision": "fp32"}


def start_of(name: str, data: Path, backbone: Path, runs: Path, *, seed: int, labelled: float, **changes: Any) -> Stage:
    """What a method starts from: its domain pre-training, done or reused."""
    settings = small_settings(name, data, backbone, **{**QUICK, **changes})
    settings = settings.model_copy(update={"seed": seed, "labelled": labelled})
    context, pool_set = run_context(runs), read_pool_set(data)
    stages = stages_of(settings, pool_set, context)
    _, start = stages.initial
    assert start is not None
    return start


def test_logs_are_read_by_contrastive_domain_pretraining_only_if_it_may(
    runs: Path, tiny_pools: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    source = tmp_path / "dialogues.jsonl"
    simulate(source, num_dialogues=40, seed=1)
    pools = tmp_path / "pools"
    logs = tmp_path / "logs.jsonl"
    simulate(logs, num_dialogues=40, seed=2)
    prepare(source, pools, PrepareSettings(num_candidates=4, labelled=0.5), logs=logs)
    listener = Silent()
    finished = run(small_settings("bert", pools, tiny_bert, **QUICK), run_context(runs, listener))
    assert [stage["name"] for stage in finished.stages][:3] == ["tokens", "log-tokens", "domain-pretraining"]
    starts = [
        start_of("bert", pools, tiny_bert, runs, seed=1, labelled=0.5, **{"domain_pretraining.targets": targets})
        for targets in ("logs", "windows", "replies")
    ]
    assert len({stage.digest for stage in starts}) == 3
    assert {name.split(".")[0] for name in read_weights(starts[0].path / "checkpoint")} == {"dual_encoder"}
