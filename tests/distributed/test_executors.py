"""Every method by Ray and in this process: the same stages, the same scores, weights that differ by rounding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from distributed.drivers import ON_RAY
from distributed.recording import Recording, check_alike, map_again
from helpers.runs import CPU, SETTINGS, run_context, small_settings
from helpers.tiny_language_models import write_tiny_language_model
from helpers.tiny_models import pool_texts

from icalib.core.run_folder import RunFolder
from icalib.data.schema import Split
from icalib.methods.catalogue import method_names
from icalib.pipeline.config import RunConfig
from icalib.pipeline.run import run
from icalib.stages.executor import Executor, LocalExecutor

pytestmark = pytest.mark.ray

ONE_OF_EACH_KIND = ("bi-encoder", "bert", "icast", "gpf-bert", "pg-drr")
EPOCH = {**SETTINGS["regime.training"], "epochs": 1}
FEW: dict[Split, int] = {"train": 24, "validation": 8, "test": 8}
QUICK: dict[str, Any] = {
    "encoder.embedding_size": 16,
    "encoder.num_blocks": 1,
    "encoder.intent_filters": 4,
    "encoder.matching_size": 16,
    "head.num_chains": 2,
    "head.num_steps": 3,
    "domain_pretraining.max_windows": 16,
    "domain_pretraining.training.epochs": 1,
    "domain_pretraining.training.precision": "fp32",
    "pretraining.word_vectors.training.epochs": 1,
    "pretraining.intent_classifier.training.epochs": 1,
    "regime.training": EPOCH,
    "regime.teacher": EPOCH,
    "regime.num_members": 2,
    "uncertainty.num_passes": 2,
    "scoring.pools_per_shard": 16,
}
GENERATOR = {
    "training": {"epochs": 1, "learning_rate": 1e-3, "precision": "fp32"},
    "max_source_tokens": 40,
    "max_target_tokens": 10,
    "pools_per_shard": 20,
}


class Side:
    """Runs by one executor; they share stages, and their sharded jobs are checked once."""

    def __init__(self, runs: Path, executor: Executor) -> None:
        self._runs, self._executor = runs, Recording(executor)
        self._num_checked = 0

    def run(self, settings: RunConfig) -> RunFolder:
        return run(settings, run_context(self._runs, executor=self._executor))

    def check_shards(self, scratch: Path) -> None:
        """Check that this process computes the shards of the last run to the bit."""
        new = self._executor.mapped[self._num_checked :]
        self._num_checked = len(self._executor.mapped)
        for job, folder in new:
            map_again(job, folder, scratch)


@pytest.fixture(scope="module")
def by_ray(local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Side:
    return Side(tmp_path_factory.mktemp("ray"), ON_RAY)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Side:
    return Side(tmp_path_factory.mktemp("here"), LocalExecutor(CPU, num_threads=1))


@pytest.fixture(scope="module")
def generator(tiny_pools: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Settings of a tiny language model that is fine-tuned."""
    folder = tmp_path_factory.mktemp("generator")
    return {"target": str(write_tiny_language_model(folder, "bart", pool_texts(tiny_pools))), **GENERATOR}


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [name if name in ONE_OF_EACH_KIND else pytest.param(name, marks=pytest.mark.nightly) for name in method_names()],
)
def test_both_executors_run_a_method_alike(
    by_ray: Side, here: Side, generator: dict[str, Any], tiny_pools: Path, tiny_bert: Path, tmp_path: Path, method: str
) -> None:
    further: dict[str, Any] = {"regime.generator": generator} if method == "gray" else {}  # `big` keeps retrieval
    if method in ("bert", "tsst", "icast"):
        further["similarity"] = {"training": {**EPOCH, "batch_size": 4, "selection_metric": "MAP"}}
    if method == "icast":
        further["intent"] = {"training": {**EPOCH, "selection_metric": "NLL"}}
    settings = small_settings(method, tiny_pools, tiny_bert, limit=FEW, **QUICK, **further)
    # GRN's softmax over the pool doesn't depend on a bias: its gradients are rounding, which Adam turns into steps.
    without_effect = "answer_head.linear.bias" if method == "grn" else ""
    check_alike(by_ray.run(settings), here.run(settings), without_effect)
    by_ray.check_shards(tmp_path)
