"""Models whose weights ZeRO 3 shards, and what it leaves in a process; no Ray is started."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
from helpers.runs import CPU
from helpers.tiny_models import ranker_config, token_store
from helpers.train_jobs import answer_job, job_of
from torch.nn import functional

from icalib.data.pools import read_pool_set
from icalib.distributed import training
from icalib.distributed.checkpoints import OwnCheckpoints
from icalib.distributed.engine import DeepSpeedEngine
from icalib.heads.head import Support
from icalib.heads.polya_gamma import PolyaGammaHead
from icalib.models.model import Model
from icalib.parts.intent_encoder import IntentEncoderJob
from icalib.training.job import TrainingJob
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import Posterior

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning:torch", "ignore::DeprecationWarning:torch")

SHARDED = TrainingSettings(epochs=1, batch_size=8, precision="fp32", zero_stage=3)


@pytest.fixture
def tokens(tiny_pools: Path, tiny_bert: Path, tmp_path: Path) -> Path:
    token_store(tiny_pools, "train", tiny_bert, tmp_path)
    token_store(tiny_pools, "validation", tiny_bert, tmp_path)
    return tmp_path


def intent_encoder(pools: Path, backbone: Path, tokens: Path) -> TrainingJob:
    own = {"ridge": 0.5, "num_folds": 2, "num_intents": len(read_pool_set(pools).intents), "training": SHARDED}
    return job_of(IntentEncoderJob, backbone, tokens, labelled=0.3, **own)


def polya_gamma(pools: Path, backbone: Path, tokens: Path, zero_stage: int = 3) -> TrainingJob:
    support = Support(size=16)
    head = PolyaGammaHead.Config(num_chains=2, num_steps=2, prediction_steps=2, support=support)
    ranker = ranker_config(backbone).model_copy(update={"head": head})
    return answer_job(
        tokens, ranker, estimator=Posterior.Config(), training=SHARDED.model_copy(update={"zero_stage": zero_stage})
    )


@pytest.mark.parametrize("job_on", [intent_encoder, polya_gamma])
def test_sharded_weights_validate_as_whole_ones(
    alone: None, tiny_pools: Path, tiny_bert: Path, tokens: Path, job_on: Any
) -> None:
    job: TrainingJob = job_on(tiny_pools, tiny_bert, tokens)
    made = job.prepare(CPU)
    validation, model = made.validation, made.model.eval()
    assert validation is not None
    whole = validation.metrics([validation(model, 0, 1)])
    DeepSpeedEngine(model, job.loop_settings, CPU, OwnCheckpoints(tokens))
    assert validation.metrics([validation(model, 0, 1)]) == pytest.approx(whole, abs=1e-5)


@pytest.mark.parametrize("zero_stage", [0, 2, 3])
def test_a_training_leaves_torch_as_it_was_and_no_model_to_what_its_process_computes_next(
    environment: None, tiny_pools: Path, tiny_bert: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch, zero_stage: int
) -> None:
    job = polya_gamma(tiny_pools, tiny_bert, tokens, zero_stage)
    linear, models = functional.linear, list[ref[Model]]()

    def work(config: dict[str, str], checkpoints: OwnCheckpoints) -> None:
        model = job.prepare(CPU).model
        models.append(ref(model))
        with closing(DeepSpeedEngine(model, job.loop_settings, CPU, checkpoints)):
            assert (functional.linear is not linear) == (zero_stage == 3)

    monkeypatch.setattr(training, "_worker", work)
    training._worker_alone({"folder": str(tokens)})
    assert functional.linear is linear
    assert zero_stage == 3 or [one() for one in models] == [None]  # DeepSpeed has a list of those that it sharded
