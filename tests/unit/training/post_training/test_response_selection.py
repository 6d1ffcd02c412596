from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.artifacts import known
from helpers.observers import Silent
from helpers.tiny_models import BUDGET, ranker_config, token_store
from scipy.special import log_softmax

from icalib.data.encoding import TokenStore
from icalib.data.selection import Selection
from icalib.losses.binary import BinaryCrossEntropy
from icalib.models.dual_encoder import DualEncoder
from icalib.models.ranker import Ranker, load_ranker, make_batch, start_weights
from icalib.training.answers import TrainJob
from icalib.training.local_engine import LocalEngine
from icalib.training.loop import train
from icalib.training.post_training.job import SelectionJob
from icalib.training.post_training.response_selection import ResponseSelection
from icalib.training.post_training.responses import Responses
from icalib.training.settings import TrainingSettings
from icalib.training.similarity_fit import fit_slope

CPU = torch.device("cpu")
ALL = Selection(labelled_fraction=1.0)


@pytest.fixture(scope="module")
def tokens(tiny_pools: Path, tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokens")
    for split in ("train", "validation", "test"):
        token_store(tiny_pools, split, tiny_bert, folder)  # type: ignore[arg-type]
    return folder


@pytest.fixture(scope="module")
def reader(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoint of a bi-encoder."""
    folder = tmp_path_factory.mktemp("reader")
    torch.manual_seed(5)
    dual = DualEncoder(str(tiny_bert), BUDGET)
    with torch.no_grad():
        for parameter in dual.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    dual.save(folder, dual.state_dict())
    return folder


def settings(**changed: Any) -> ResponseSelection.Config:
    training = {"batch_size": 4, "precision": "fp32", "learning_rate": 1e-3, "head_learning_rate": 1e-2}
    training |= changed.pop("training", {})
    return ResponseSelection.Config(training=TrainingSettings(**training), **changed)  # type: ignore[arg-type]


def job(tokens: Path, backbone: Path, reader: Path, **changed: Any) -> SelectionJob:
    return SelectionJob(
        ranker=ranker_config(backbone).model_copy(update={"similarity_start": "separate"}),
        task=settings(**changed),
        start=known(reader),
        selection=ALL,
        train_tokens=known(tokens / "train.arrow"),
        validation_tokens=known(tokens / "validation.arrow"),
        test_tokens=known(tokens / "test.arrow"),
    )


def test_pools_have_the_target_first_and_other_texts_after_it(tokens: Path, tiny_bert: Path, reader: Path) -> None:
    made = job(tokens, tiny_bert, reader, num_negatives=5, max_windows=None)
    task = made.curriculum(Ranker(made.ranker).layout)
    responses = Responses(made.corpus(), "logs", 4)
    examples = [example for batch in task.batches(0) for example in batch]
    assert sorted(example.texts[0] for example in examples) == list(range(len(responses)))
    for example in examples:
        keys = responses.keys[list(example.texts)]
        assert len(keys) == 6
        assert keys[0] not in keys[1:]
    again, later = task.batches(0), task.batches(1)
    assert again != later
    assert [e.texts for batch in again for e in batch] == [e.texts for e in examples]


def test_targets_are_cut_like_candidates(tokens: Path, tiny_bert: Path, reader: Path) -> None:
    made = job(tokens, tiny_bert, reader, max_windows=None)
    layout = Ranker(made.ranker).layout
    short = dataclasses.replace(layout, budget=layout.budget.model_copy(update={"max_candidate_tokens": 2}))
    task = made.curriculum(short)
    lengths = [
        (len(ids) - 3) - sum(map(len, Responses(made.corpus(), "logs", 4).context(example.texts[0])))
        for example in task.batches(0)[0]
        for ids, _ in task.pairs(example)
    ]
    assert max(lengths) == 2


def test_wrong_utterances_share_words_with_the_target(tokens: Path, tiny_bert: Path, reader: Path) -> None:
    made = job(tokens, tiny_bert, reader)
    responses = Responses(made.corpus(), "logs", 4)
    shared = []
    for example in (e for batch in made.curriculum(Ranker(made.ranker).layout).batches(0) for e in batch):
        right, *wrong = (set(responses.target(text).tolist()) for text in example.texts)
        shared.append(np.mean([len(right & words) for words in wrong]))
    rng = np.random.default_rng(0)
    texts = [set(responses.target(index).tolist()) for index in range(len(responses))]
    chance = [len(texts[a] & texts[b]) for a, b in rng.integers(len(texts), size=(500, 2)) if a != b]
    assert np.mean(shared) > 1.5 * np.mean(chance)


def test_the_loss_is_a_softmax_over_each_pool(tokens: Path, tiny_bert: Path, reader: Path) -> None:
    made = job(tokens, tiny_bert, reader).prepare(CPU)
    ranker, task = made.model.eval(), made.curriculum
    examples = task.batches(0)[0]
    name, loss = task.losses(ranker, examples, CPU)
    with torch.inference_mode():
        logits = [
            ranker.answer_logits(make_batch(task.pairs(example), ranker.layout, CPU)).numpy() for example in examples
        ]
    assert name == "response_selection"
    assert loss.item() == pytest.approx(-sum(log_softmax(pool)[0] for pool in logits), rel=1e-4)
    _, outcome, _ = task.outcomes(ranker, examples, CPU)
    assert outcome.right.tolist() == [pool.argmax() == 0 for pool in logits]


def test_the_slope_makes_the_right_candidates_most_likely(tokens: Path, tiny_bert: Path, reader: Path) -> None:
    made = job(tokens, tiny_bert, reader)
    ranker = Ranker(made.ranker)
    start_weights(ranker, reader)
    task = made.curriculum(ranker.layout)
    fit_slope(ranker, task, made.loop_settings, CPU)
    assert ranker.similarity_start is not None
    examples = [example for batch in task.batches(0) for example in batch][:100]
    with torch.inference_mode():
        similarity = np.stack(
            [ranker.similarities(make_batch(task.pairs(e), ranker.layout, CPU)).double().numpy() for e in examples]
        )
    slopes = np.linspace(0, 100, 2001)
    losses = [-log_softmax(slope * similarity, axis=1)[:, 0].mean() for slope in slopes]
    assert ranker.similarity_start.slope.item() == pytest.approx(slopes[int(np.argmin(losses))], abs=0.3)


def test_training_on_answers_starts_from_its_logits_on_the_scale_of_probabilities(
    tokens: Path, tiny_bert: Path, reader: Path, tmp_path: Path
) -> None:
    made = job(tokens, tiny_bert, reader, max_windows=60, training={"epochs": 2})
    training = made.prepare(CPU)
    assert training.validation is not None
    frozen = {n: p.clone() for n, p in training.model.named_parameters() if n.startswith("bi_encoder.")}
    engine = LocalEngine(training.model, made.loop_settings)
    train(training.model, engine, training.curriculum, made.loop_settings, Silent(), seed=0, validation=None)
    assert all(torch.equal(parameter, training.model.state_dict()[name]) for name, parameter in frozen.items())
    training.model.save(tmp_path, training.model.state_dict())
    answers = TrainJob(
        ranker=made.ranker,
        loss=BinaryCrossEntropy.Config(),
        training=TrainingSettings(precision="fp32"),
        selection=ALL,
        train_tokens=made.train_tokens,
        validation_tokens=made.validation_tokens,
        start=known(tmp_path),
        seed=1,
    ).prepare(CPU)
    store = TokenStore(tokens / "train.arrow")
    pools = list(store.pools(range(40)))
    logits = []
    for ranker in (load_ranker(tmp_path), answers.model):
        inputs = [x for p in pools for x in ranker.layout.inputs(p.context, None, p.candidates)]
        with torch.inference_mode():
            logits.append(ranker.eval().answer_logits(make_batch(inputs, ranker.layout, CPU)).double().numpy())
    slope, offset = np.polyfit(*logits, 1)
    assert slope >= 0
    np.testing.assert_allclose(logits[1], slope * logits[0] + offset, atol=1e-4)
    right = np.concatenate([[number == pool.label for number in range(len(pool.candidates))] for pool in pools])
    assert (1 / (1 + np.exp(-logits[1]))).mean() == pytest.approx(right.mean(), abs=0.03)


def test_held_out_pools_are_those_of_validation_contexts(tokens: Path, tiny_bert: Path, reader: Path) -> None:
    training = job(tokens, tiny_bert, reader, held_out_windows=10).prepare(CPU)
    assert training.validation is not None
    found = training.validation.metrics([training.validation(training.model.eval(), 0, 1)])
    assert set(found) == {"held_out/response_selection/accuracy", "held_out/response_selection/loss"}
