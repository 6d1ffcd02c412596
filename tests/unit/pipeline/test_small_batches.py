from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from helpers.runs import Silent
from helpers.tiny_models import ranker_config
from helpers.train_jobs import answer_job

from icalib.core.files import write_json
from icalib.core.stage_cache import StageCache, StageName
from icalib.stages.resources import Resources
from icalib.stages.stages import Stages
from icalib.training.job import TrainingJob
from icalib.training.settings import TrainingSettings


class Trainer:
    """Stands in for an executor, and trains nothing."""

    def __init__(self, resources: Resources) -> None:
        self.resources = resources

    def train(self, job: TrainingJob, folder: Path, stage: str, emit: Any) -> None:
        write_json(folder / "curve.json", [])
        write_json(folder / "result.json", {"best_epoch": 1})


@pytest.mark.parametrize(
    ("workers", "use_gpu", "batch_size", "expected"),
    [
        (8, True, 16, "8 workers, so each GPU has at most 2 examples.*to 64.*`learning_rate`.*accumulation`"),
        (8, True, 64, None),
        (1, True, 4, None),
        (8, False, 16, None),
    ],
)
def test_batches_that_leave_gpus_idle_are_named_once(
    tmp_path: Path, tiny_bert: Path, workers: int, use_gpu: bool, batch_size: int, expected: str | None
) -> None:
    made, silent = Trainer(Resources(workers, use_gpu, cpus_per_worker=1, num_scorers=1)), Silent()
    unused: Any = None
    stages = Stages(
        composition=unused,
        folder=unused,
        pool_set=unused,
        selection=unused,
        seed=1,
        cache=StageCache(tmp_path),
        executor=made,
        emit=silent,  # type: ignore[arg-type]
    )
    job = answer_job(Path("tokens"), ranker_config(tiny_bert), training=TrainingSettings(batch_size=batch_size))
    for _ in range(2):  # the second time, the stage is reused
        stages.run(StageName("teacher"), job)
    assert len(silent.messages) == (expected is not None)
    assert all(re.search(expected or "", message) for message in silent.messages)
