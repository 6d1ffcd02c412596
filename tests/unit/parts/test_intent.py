from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.artifacts import known
from helpers.gathering import sent
from helpers.train_jobs import job_of
from torch import Tensor

from icalib.core.events import ignore
from icalib.core.files import read_json, read_json_list
from icalib.core.parquet import read_parquet
from icalib.data.encoding import TokenPool, TokenStore
from icalib.data.folds import Fold, fold_of
from icalib.models.bi_encoder import unit_means
from icalib.models.ranker import make_batch
from icalib.parts.intent import OUT_OF_FOLD, Intent, IntentJob, IntentWeights, LoadedIntent, _by_folds, _Form
from icalib.parts.intent_encoder import IntentCurriculum, IntentEncoder, IntentEncoderJob, load_predictor
from icalib.parts.intent_model import (
    IntentModel,
    PoolIntents,
    Utterances,
    candidate_intents,
    fit_intents,
    intents_alone,
    vectors_of,
)
from icalib.scoring.column import read_columns
from icalib.stages.executor import LocalExecutor
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import Deterministic

CPU = torch.device("cpu")
RNG = np.random.default_rng
CENTRES = np.linalg.qr(RNG(9).normal(size=(8, 8)))[0][:3].astype(np.float32)
"""The vectors [3, 8] of three intents."""
EMPTY = (np.zeros(1, np.float32), np.zeros((1, 0), np.float32))
"""Form and posterior that aren't fitted."""


def utterances(seed: int, num_pools: int, noise: float) -> Utterances:
    """Contexts of three utterances, whose intents follow each other: 0 → 1 → 2 → 0."""
    rng = RNG(seed)
    turn_N = np.tile(np.arange(3), num_pools)
    intent_N = (np.repeat(rng.integers(0, 3, num_pools), 3) + turn_N) % 3
    vectors_ND = (CENTRES[intent_N] + noise * rng.normal(size=(len(turn_N), 8))).astype(np.float32)
    hot_NK = np.eye(3, dtype=np.float32)[intent_N]
    return Utterances(vectors_ND, hot_NK, turn_N, np.repeat(np.arange(num_pools), 3))


def accuracy(probs_NK: np.ndarray, gold_NK: np.ndarray) -> float:
    return float((probs_NK.argmax(1) == gold_NK.argmax(1)).mean())


def test_intents_are_learnt_from_vectors_and_from_the_intents_before() -> None:
    learnt, fresh = utterances(1, 100, 0.4), utterances(2, 200, 0.4)
    model, (out_of_fold_NK, _) = fit_intents(learnt, np.arange(100) % 2, 2, 0.05)
    found_NK = fresh.predicted_by(model.utterance_DK)
    assert accuracy(found_NK, fresh.intents_NK) > 0.8
    assert accuracy(out_of_fold_NK, learnt.intents_NK) > 0.75
    later = fresh.turn_N > 0
    alone_NK = intents_alone(model.candidate_DK, fresh.vectors_ND)
    assert accuracy(found_NK[later], fresh.intents_NK[later]) > accuracy(alone_NK[later], fresh.intents_NK[later])


def test_nothing_is_before_the_first_utterance_of_a_context() -> None:
    data, values = utterances(3, 2, 0.1), np.arange(18, dtype=np.float32).reshape(6, 3)
    expected = [np.zeros(3), values[0], values[1], np.zeros(3), values[3], values[4]]
    np.testing.assert_array_equal(data.before(values), expected)


def test_the_intents_of_a_reply_are_learnt_from_what_it_replies_to() -> None:
    data = utterances(4, 200, 0.2)
    nothing_NK = np.zeros_like(data.intents_NK)
    last = data.vectors_ND[data.turn_N == 1]
    found_NK = intents_alone(data.fit_next(nothing_NK, 0.05), np.concatenate([last, nothing_NK[:200]], 1))
    assert accuracy(found_NK, data.intents_NK[data.turn_N == 2]) > 0.9


def test_an_utterance_out_of_fold_is_predicted_by_a_fit_to_the_others() -> None:
    data, fold_P = utterances(5, 40, 0.3), np.arange(40) % 2
    _, (before, _) = fit_intents(data, fold_P, 2, 0.05)
    changed = data.intents_NK.copy()
    held = (fold_P == 0)[data.pool_N]
    changed[held] = changed[held][:, [1, 2, 0]]
    _, (after, _) = fit_intents(Utterances(data.vectors_ND, changed, data.turn_N, data.pool_N), fold_P, 2, 0.05)
    assert accuracy(after[held], data.intents_NK[held]) > 0.7  # learnt from the other fold, whose labels are right
    assert accuracy(after[~held], data.intents_NK[~held]) < 0.3 < accuracy(before[~held], data.intents_NK[~held])


def test_a_candidate_is_predicted_by_a_fit_without_the_fold_of_its_pool() -> None:
    data, fold_P = utterances(5, 40, 0.3), np.arange(40) % 2
    candidates = [CENTRES] * 40
    changed = data.intents_NK.copy()
    held = (fold_P == 0)[data.pool_N]
    changed[held] = changed[held][:, [1, 2, 0]]
    wrong = Utterances(data.vectors_ND, changed, data.turn_N, data.pool_N)
    found = candidate_intents(wrong, candidates, fold_P, 2, 0.05)
    for fold, expected in ((0, [0, 1, 2]), (1, [2, 0, 1])):  # of the other fold's labels
        for one_CK in (found[number] for number in np.flatnonzero(fold_P == fold)):
            assert one_CK.argmax(1).tolist() == expected


def form(seed: int, num_pools: int = 12) -> _Form:
    rng = RNG(seed)
    number = 4 * num_pools
    pool_N = np.repeat(np.arange(num_pools), 4)
    x_ND = rng.normal(size=(number, 5)).astype(np.float32)
    label_N = np.tile([0, 1, 0, -1], num_pools)
    label_N[2] = 1  # a pool with two right candidates
    return _Form(x_ND, rng.normal(size=number).astype(np.float32), label_N, pool_N, pool_N % 2)


@pytest.mark.parametrize("ridge", [0.3, 5.0])
def test_the_covariance_of_the_weights_is_the_inverse_hessian(ridge: float) -> None:
    made = form(6)
    weight_F, spread_FF = made.fit(ridge)
    x, offset = torch.from_numpy(made.x_ND).double(), torch.from_numpy(made.offset_N).double()

    def loss(weight: Tensor) -> Tensor:
        logit = offset + x @ weight
        total = ridge / 2 * (weight**2).sum()
        for pool in range(12):
            rows = [row for row in range(4 * pool, 4 * pool + 4) if made.label_N[row] >= 0]
            wrong = [row for row in rows if made.label_N[row] == 0]
            for right in (row for row in rows if made.label_N[row] == 1 and wrong):
                total = total - logit[right] + torch.logsumexp(logit[[right, *wrong]], 0)
        return total

    weight = torch.from_numpy(weight_F).double().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(weight), weight)
    assert gradient.abs().max() < 1e-2
    hessian = torch.autograd.functional.hessian(loss, weight.detach())
    expected = torch.linalg.inv(hessian).numpy()
    np.testing.assert_allclose(spread_FF @ spread_FF.T, expected, rtol=1e-3, atol=1e-5)


def test_values_of_the_form_out_of_fold_ignore_the_labels_of_their_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("icalib.parts.intent._RIDGES", (1.0,))
    made = form(7)
    held = made.fold_N == 0
    flipped_N = np.where(held & (made.label_N >= 0), 1 - made.label_N, made.label_N)
    other = _Form(made.x_ND, made.offset_N, flipped_N, made.pool_N, made.fold_N)
    (ridge, values_N), (_, others_N) = made.best_ridge(2), other.best_ridge(2)
    np.testing.assert_array_equal(values_N[held], others_N[held])
    assert np.abs(values_N - others_N)[~held].max() > 1e-2
    assert np.abs(values_N - made.x_ND @ made.fit(ridge)[0]).max() > 1e-2


def intent_job(tokens: Path, backbone: Path, num_intents: int, **fields: Any) -> IntentJob:
    own = {"settings": Intent(num_components=4), "num_intents": num_intents, "precision": "fp32", **fields}
    return job_of(IntentJob, backbone, tokens, labelled=0.3, **own)


def test_labelled_pools_have_a_column_out_of_fold(
    tokens: Path, tiny_bert: Path, intents: tuple[str, ...], tmp_path: Path, store: TokenStore
) -> None:
    intent_job(tokens, tiny_bert, len(intents)).compute_shard(0, None, tmp_path, CPU)
    (path,) = (tmp_path / OUT_OF_FOLD).iterdir()
    table = read_parquet(path)
    rows = sorted(set(table["row"].to_pylist()))
    assert rows == np.flatnonzero(store.column("label_order") < len(rows)).tolist()
    (of_labelled,) = read_columns(table)["intent"].mean_SN
    part = LoadedIntent.load(tmp_path / "checkpoint", Deterministic.Config(), "fp32", CPU)
    column, probs = part.predict(list(store.pools(rows)))
    assert np.abs(of_labelled - column.mean_SN[0]).max() > 1e-3
    assert {probs_TK.shape[1] for probs_TK in probs} == {len(intents)}
    assert read_json(tmp_path / "intents.json")["micro_F1"] >= 0


@pytest.mark.parametrize("has_encoders", [False, True])
def test_a_fold_that_is_left_out_is_not_seen(
    has_encoders: bool, tokens: Path, tiny_bert: Path, intents: tuple[str, ...], tmp_path: Path, store: TokenStore,
    encoders: list[Path], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Of the other pools each is read by the encoder of the half that it isn't in, however the fold cuts the halves."""
    left_out, rows = Fold(index=2, number=5), np.flatnonzero(store.column("label_order") < 0.3 * len(store))
    others = left_out.others(store, rows)
    halves: list[list[int]] = []

    def by_folds(predictors: Any, pools: Any, fold_P: Any) -> Any:
        halves.append(fold_P.tolist())
        return _by_folds(predictors, pools, fold_P)

    monkeypatch.setattr("icalib.parts.intent._by_folds", by_folds)
    given = tuple(known(path) for path in encoders) if has_encoders else ()
    intent_job(tokens, tiny_bert, len(intents), left_out=left_out, encoders=given).compute_shard(0, None, tmp_path, CPU)
    table = read_parquet(tmp_path / OUT_OF_FOLD / "column-000000.parquet")
    assert sorted(set(table["row"].to_pylist())) == others.tolist() != rows.tolist()
    half_of = dict(zip(rows.tolist(), fold_of(store, rows, 2).tolist(), strict=True))
    assert halves == [[half_of[row] for row in others.tolist()]] * has_encoders


def test_the_ratio_is_bayes_rule_for_independent_intents() -> None:
    """p(a | reply) / p(a) of one candidate, by summing over all 2ᴷ sets of intents."""
    rng = RNG(10)
    sizes = ((8 + 3 + 1 + 1, 3), (8 + 1, 3), (8 + 3 + 1, 3))
    model = IntentModel(*(rng.normal(size=size).astype(np.float32) for size in sizes))
    candidate_1D = rng.normal(size=(1, 8)).astype(np.float32)
    reply_K, frequency_K = np.array([[0.2, 0.7, 0.5], [0.3, 0.1, 0.6]], np.float32)
    weights = IntentWeights(model, np.zeros((8, 0), np.float32), candidate_1D[0], frequency_K, *EMPTY, False)
    own_K = intents_alone(model.candidate_DK, candidate_1D)[0]
    total = 0.0
    for present in itertools.product([0, 1], repeat=3):
        own, reply, prior = (np.prod(np.where(present, prob_K, 1 - prob_K)) for prob_K in (own_K, reply_K, frequency_K))
        total += own * reply / prior
    intents = PoolIntents(np.zeros((1, 3), np.float32), reply_K, own_K[None])
    found = weights.features(intents, candidate_1D)[0, 0]
    assert found == pytest.approx(np.log(total), rel=1e-4)


TRAINING = TrainingSettings(
    epochs=2, learning_rate=1e-3, head_learning_rate=1e-2, precision="fp32", selection_metric="NLL", batch_size=8
)


@pytest.fixture(scope="module")
def encoder_job(tokens: Path, tiny_bert: Path, intents: tuple[str, ...]) -> IntentEncoderJob:
    own = {"training": TRAINING, "ridge": 0.5, "num_folds": 2, "num_intents": len(intents)}
    return job_of(IntentEncoderJob, tiny_bert, tokens, labelled=0.3, **own)


@pytest.fixture(scope="module")
def encoders(encoder_job: IntentEncoderJob, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The encoder, and one without each of two folds."""
    folders: list[Path] = []
    for left_out in (None, Fold(index=0, number=2), Fold(index=1, number=2)):
        folders.append(tmp_path_factory.mktemp("encoder"))
        job = encoder_job.model_copy(update={"left_out": left_out})
        LocalExecutor(CPU, num_threads=1).train(job, folders[-1], "intent-encoder", ignore)
    return [folder / "checkpoint" for folder in folders]


def test_an_encoder_begins_with_the_regressions_and_becomes_better_on_validation(
    encoder_job: IntentEncoderJob, encoders: list[Path], tokens: Path
) -> None:
    training = encoder_job.prepare(CPU)
    encoder = training.model
    assert isinstance(encoder, IntentEncoder)
    store = TokenStore(tokens / "train.arrow")
    rows = np.flatnonzero(store.column("label_order") < 0.3 * len(store))
    pools = list(store.pools(rows.tolist()))
    assert len({pool.dialog_id for pool in pools}) < len(pools)  # a dialogue's pools share utterances, so also a fold
    vectors = vectors_of(encoder, (ids for pool in pools for ids in pool.context), "fp32")
    known_ones = Utterances.of(pools, vectors, encoder_job.num_intents)
    model, _ = fit_intents(known_ones, fold_of(store, rows, 2), 2, 0.5)
    for ours, theirs in zip(encoder.model, model, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    points = [point for point in read_json_list(encoders[0].parent / "curve.json") if point["tag"] == "cal/NLL"]
    assert points[0]["epoch"] == 0
    assert min(point["value"] for point in points[1:]) < points[0]["value"]


def one_pool(context: list[np.ndarray], intents: list[list[int]]) -> TokenPool:
    return TokenPool(0, "pool", "dialogue", context, intents, [context[0][:2]], 0)


@pytest.mark.parametrize("number", [17, 126, 127, 300])  # the budget of a candidate is 16; there are 128 positions
def test_the_encoder_is_trained_on_what_it_predicts_from_however_long_an_utterance_is(
    encoder_job: IntentEncoderJob, number: int
) -> None:
    encoder = IntentEncoder(encoder_job.backbone, encoder_job.budget, encoder_job.num_intents).eval()
    ids = RNG(1).integers(5, 50, number).astype(np.int32)
    curriculum = IntentCurriculum([one_pool([ids], [[0]])], encoder.layout, encoder_job)
    ((example,),) = curriculum.batches(0)
    (predicted,) = vectors_of(encoder, [ids], "fp32").values()
    with torch.inference_mode():
        trained = unit_means(encoder.encoder, make_batch([(example.ids, len(example.ids))], encoder.layout, CPU))
    np.testing.assert_allclose(trained[0].numpy(), predicted, atol=1e-6)


def test_where_the_intents_before_are_hidden_it_stays_known_which_utterance_is_the_first(
    encoder_job: IntentEncoderJob,
) -> None:
    encoder = IntentEncoder(encoder_job.backbone, encoder_job.budget, encoder_job.num_intents)
    pool = one_pool([np.full(3, 7, np.int32), np.full(4, 7, np.int32)], [[0], [1]])
    batches = IntentCurriculum([pool] * 100, encoder.layout, encoder_job).batches(0)
    examples = [one for batch in batches for one in batch]
    assert all((one.before[-1] == 1) == (one.length == 3 + 2) for one in examples)
    num_hidden = sum(one.length == 4 + 2 and not one.before.any() for one in examples)
    assert 5 < num_hidden < 40


def test_validation_of_the_encoder_is_the_same_however_many_workers_share_the_pools(
    encoder_job: IntentEncoderJob,
) -> None:
    training = encoder_job.prepare(CPU)
    validation, encoder = training.validation, training.model.eval()
    assert validation is not None
    alone, shared = (
        validation.metrics([sent(validation(encoder, rank, number)) for rank in range(number)]) for number in (1, 100)
    )
    assert shared == pytest.approx(alone)


def test_labelled_pools_are_read_by_the_encoder_that_was_trained_without_them(
    encoders: list[Path], tiny_bert: Path, tokens: Path, intents: tuple[str, ...], tmp_path: Path, store: TokenStore
) -> None:
    job = intent_job(tokens, tiny_bert, len(intents), encoders=tuple(known(path) for path in encoders))
    job.compute_shard(0, None, tmp_path, CPU)
    part = LoadedIntent.load(tmp_path / "checkpoint", Deterministic.Config(), "fp32", CPU)
    rows = np.flatnonzero(store.column("label_order") < 0.3 * len(store))
    folds = fold_of(store, rows, 2)
    pools = list(store.pools(rows.tolist()))
    _, probs = part.predict(pools)
    whole, *by_fold = [load_predictor(path, "fp32", CPU) for path in encoders]
    for found_TK, expected in zip(probs, whole.predict(pools), strict=True):
        np.testing.assert_allclose(found_TK, expected.context_TK, atol=1e-6)
    read = _by_folds(by_fold, pools, folds)
    for fold, predictor in enumerate(by_fold):
        held = np.flatnonzero(folds == fold).tolist()
        for index, expected in zip(held, predictor.predict([pools[index] for index in held]), strict=True):
            np.testing.assert_array_equal(read[index].reply_K, expected.reply_K)
    each = zip(read, whole.predict(pools), strict=True)
    assert max(np.abs(one.reply_K - other.reply_K).max() for one, other in each) > 1e-3
