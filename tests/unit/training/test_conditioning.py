from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.observers import Silent
from helpers.scoring import score_pools
from helpers.tiny_models import ranker_config
from helpers.train_jobs import answer_job

from icalib.core.errors import PosteriorError
from icalib.core.files import write_json
from icalib.data.encoding import TokenStore
from icalib.encoders.transformer import Batch
from icalib.heads.head import AbstractHead, LogitPosterior, Support
from icalib.heads.polya_gamma import PolyaGammaHead
from icalib.heads.random_features import RandomFeatureHead
from icalib.metrics.calibration import ece, nll
from icalib.models.checkpoint import save_ranker
from icalib.models.ranker import load_ranker
from icalib.scoring.cross import LoadedCross
from icalib.training.conditioning import Conditioning, choose_support
from icalib.training.cross_encoder import CrossEncoderJob
from icalib.training.examples import gold_labels
from icalib.training.job import Training, complete_posterior, run_here
from icalib.training.local_engine import LocalEngine
from icalib.training.loop import train
from icalib.training.pairs import AnswerCurriculum
from icalib.training.settings import TrainingSettings
from icalib.training.validation import PlainValidation
from icalib.uncertainty.estimator import Posterior

CPU = torch.device("cpu")
SETTINGS = TrainingSettings(batch_size=8, epochs=1, precision="fp32")
RANDOM_FEATURES = RandomFeatureHead.Config(num_features=32)
POLYA_GAMMA = PolyaGammaHead.Config(num_chains=6, num_steps=2, prediction_steps=3, support=Support(size=8))


def job_of(tokens: Path, backbone: Path, head: AbstractHead.Config) -> CrossEncoderJob:
    return answer_job(tokens, ranker_config(backbone).model_copy(update={"head": head}), training=SETTINGS)


def saved(folder: Path, training: Training, job: CrossEncoderJob) -> Path:
    save_ranker(folder, job.ranker, training.model.state_dict())
    return folder


def conditioning(made: Training, seed: int = 0) -> Conditioning:
    assert isinstance(made.curriculum, AnswerCurriculum)
    return Conditioning(made.curriculum, SETTINGS, CPU, seed)


def add_posterior(checkpoint: Path, made: Training, job: CrossEncoderJob) -> None:
    job.add_posterior(checkpoint, made, LocalEngine(made.model, SETTINGS))
    write_json(checkpoint.parent / "result.json", {"num_jitters": 0})
    complete_posterior(job, checkpoint.parent, run_here)


def first_pairs(made: Training) -> Batch:
    assert isinstance(made.curriculum, AnswerCurriculum)
    pairs = made.curriculum.pairs()
    return made.curriculum.inputs([pairs.example(number) for number in range(5)], CPU)[0]


def posterior(checkpoint: Path, made: Training) -> LogitPosterior:
    with torch.no_grad():
        return load_ranker(checkpoint).eval().answer_posterior(first_pairs(made))


@pytest.mark.parametrize("head", [RANDOM_FEATURES, POLYA_GAMMA], ids=["random-features", "polya-gamma"])
def test_a_checkpoint_keeps_its_posterior(
    tokens: Path, tiny_bert: Path, tmp_path: Path, head: AbstractHead.Config
) -> None:
    job = job_of(tokens, tiny_bert, head)
    made = job.prepare(CPU)
    conditioning(made, job.seed).complete(made.model.eval())
    with torch.no_grad():
        expected = made.model.answer_posterior(first_pairs(made))
    checkpoint = saved(tmp_path / "checkpoint", made, job)
    add_posterior(checkpoint, made, job)
    for part, again in zip(expected, posterior(checkpoint, made), strict=True):
        torch.testing.assert_close(part, again, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("accumulation", [1, 2])
def test_pairs_that_stand_in_for_a_worker_without_any_count_nowhere(
    tokens: Path, tiny_bert: Path, accumulation: int
) -> None:
    """Two workers, batches of one pair: the second worker never has a pair of its own."""
    head = RandomFeatureHead.Config.model_validate({"num_features": 32, "laplace": "ema"})
    made = job_of(tokens, tiny_bert, head).prepare(CPU)
    settings = SETTINGS.model_copy(update={"batch_size": 1, "gradient_accumulation": accumulation})
    made.curriculum.settings = settings  # type: ignore[attr-defined]
    engine = LocalEngine(made.model, settings)
    engine.rank, engine.world_size = 1, 2
    train(made.model, engine, made.curriculum, settings, Silent(), seed=0, validation=None)
    steps = made.model.answer_head.steps
    assert int(steps.num_pairs) == 0
    assert not steps.moving_LL.any()


def test_a_posterior_of_other_weights_is_refused(tokens: Path, tiny_bert: Path, tmp_path: Path) -> None:
    job = job_of(tokens, tiny_bert, RANDOM_FEATURES)
    made = job.prepare(CPU)
    checkpoint = saved(tmp_path / "checkpoint", made, job)
    add_posterior(checkpoint, made, job)
    stale = (checkpoint / "posterior.safetensors").read_bytes()
    with torch.no_grad():
        made.model.encoder.backbone.get_input_embeddings().weight.add_(1.0)
    saved(checkpoint, made, job)
    with pytest.raises(PosteriorError):  # new weights have none yet
        posterior(checkpoint, made)
    (checkpoint / "posterior.safetensors").write_bytes(stale)
    with pytest.raises(PosteriorError, match=r"other weights than those in model\.safetensors.*Delete that folder"):
        load_ranker(checkpoint)


def test_drawn_pairs_stand_for_all(tokens: Path, tiny_bert: Path) -> None:
    made = job_of(tokens, tiny_bert, RANDOM_FEATURES).prepare(CPU)
    num_pairs = len(made.curriculum.pairs())

    def variances(max_pairs: int) -> torch.Tensor:
        Conditioning(made.curriculum, SETTINGS, CPU, 0, max_pairs=max_pairs).complete(made.model)
        return made.model.eval().answer_posterior(first_pairs(made)).var_SB

    everything = variances(num_pairs)
    few = variances(num_pairs // 2)
    assert not torch.equal(few, everything)
    torch.testing.assert_close(few, everything, rtol=0.1, atol=0)


def some_pairs(store: TokenStore, num_pools: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and labels of all pairs of the first pools."""
    made = gold_labels(store, range(num_pools), with_intents=False)
    return np.repeat(np.arange(num_pools), 4), np.concatenate([labels.labels for labels in made])


def test_a_balanced_support_has_both_classes_and_many_contexts(store: TokenStore) -> None:
    one_view = some_pairs(store, 20)
    both_views = tuple(np.tile(values, 2) for values in one_view)
    for rows, labels in (both_views, one_view):
        chosen = choose_support(rows, labels, Support(size=16), seed=1)
        assert labels[chosen].tolist() == [1] * 8 + [0] * 8
        assert len(set(rows[chosen])) == 16
    assert chosen.tolist() != choose_support(rows, labels, Support(size=16), seed=2).tolist()


@pytest.mark.parametrize(("size", "share", "right", "wrong"), [(20, 0.1, 2, 18), (64, 0.5, 10, 10), (64, 0.1, 3, 30)])
def test_a_support_that_lacks_pairs_of_one_class_is_smaller_and_keeps_its_share(
    store: TokenStore, size: int, share: float, right: int, wrong: int
) -> None:
    rows, labels = some_pairs(store, 10)
    chosen = choose_support(rows, labels, Support(size=size, positive_share=share), seed=1)
    assert labels[chosen].tolist() == [1] * right + [0] * wrong
    assert len(set(chosen)) == right + wrong


@pytest.mark.parametrize("num_pools", [1, 3, 5])
@pytest.mark.parametrize("share", [0.1, 0.9])
def test_a_small_support_has_both_classes(num_pools: int, share: float) -> None:
    rows, labels = np.repeat(np.arange(num_pools), 2), np.tile([1, 0], num_pools)
    for size in (2, 512):
        assert {*labels[choose_support(rows, labels, Support(size=size, positive_share=share), seed=0)]} == {0, 1}


@pytest.mark.parametrize(
    ("head", "integration"),
    [(RANDOM_FEATURES, "quadrature"), (RANDOM_FEATURES, "mean_field"), (POLYA_GAMMA, "quadrature")],
)
def test_validation_judges_the_probabilities_that_the_posterior_predicts(
    tokens: Path, tiny_bert: Path, head: AbstractHead.Config, integration: Any
) -> None:
    estimator = Posterior.Config(integration=integration, mean_field_factor=0.1)
    made = job_of(tokens, tiny_bert, head).model_copy(update={"estimator": estimator}).prepare(CPU)
    ranker, validation = made.model.eval(), made.validation
    assert isinstance(validation, PlainValidation)
    with pytest.raises(PosteriorError):
        ranker.answer_posterior(first_pairs(made))
    measured = validation.metrics([validation(ranker, 0, 1)])
    store = TokenStore(tokens / "validation.arrow")
    context = LoadedCross(ranker, estimator.build(), CPU, "fp32", 2048)
    table, _ = score_pools(context, store, range(len(store)), with_intents=False, seed=0)
    prob, label = table["prob_mean"].to_numpy(), table["label"].to_numpy()
    assert measured["cal/NLL"] == pytest.approx(nll(prob, label), rel=1e-4)
    assert measured["cal/ECE"] == pytest.approx(ece(prob, label), abs=1e-4)
    point = 1 / (1 + np.exp(-table["logit_mean"].to_numpy()))
    assert abs(measured["cal/NLL"] - nll(prob, label)) < abs(measured["cal/NLL"] - nll(point, label)) / 5
