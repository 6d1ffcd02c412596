"""Training of the bi-encoder on labelled pools."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from helpers.gathering import sent
from helpers.observers import Silent
from helpers.tiny_models import tiny_dual_encoder

from icalib.core.errors import RunFolderError
from icalib.data.encoding import TokenStore
from icalib.data.selection import Selection
from icalib.models.bi_encoder import BiEncoder
from icalib.parts.similarity import CosineValidation, PoolContrast, Similarity
from icalib.training.domain_pretraining.contrastive import in_batch_losses
from icalib.training.examples import PairLabels, gold_labels
from icalib.training.local_engine import LocalEngine
from icalib.training.loop import train
from icalib.training.pseudo_labelled import SOFT_LABEL_SCHEMA, soft_labelled
from icalib.training.settings import TrainingSettings

CPU = torch.device("cpu")


@pytest.fixture
def dual(tiny_bert: Path) -> BiEncoder:
    return tiny_dual_encoder(tiny_bert)


def settings(**training: Any) -> Similarity:
    small = {"batch_size": 4, "precision": "fp32", "learning_rate": 1e-3, "max_grad_norm": None}
    given = {**small, "selection_metric": "MAP", **training}
    return Similarity(training=TrainingSettings(**given), temperature=0.1)  # type: ignore[arg-type]


def gold(store: TokenStore, number: int) -> list[PairLabels]:
    return gold_labels(store, range(number), with_intents=False)


def task(store: TokenStore, dual: BiEncoder, pools: list[PairLabels], **training: Any) -> PoolContrast:
    return PoolContrast(pools, store, dual.layout, settings(**training), seed=1)


def test_the_loss_is_the_softmax_over_the_candidates_of_the_batch(store: TokenStore, dual: BiEncoder) -> None:
    made = task(store, dual.eval(), gold(store, 12))
    batch = made.batches(0)[0]
    name, loss = made.losses(dual, batch, CPU)
    assert name == "bi_encoder"
    pools = [store.pool(example.row) for example in batch]
    texts = {ids.tobytes(): ids for pool in pools for ids in pool.candidates}
    expected = 0.0
    for pool in pools:
        everywhere = dual.pool_cosines([replace(pool, candidates=list(texts.values()))])
        cosine = dict(zip(texts, everywhere / 0.1, strict=True))
        right = pool.candidates[pool.label].tobytes()
        # every occurrence of a wrong text is a rival of its own
        rivals = [cosine[ids.tobytes()] for one in pools for ids in one.candidates if ids.tobytes() != right]
        expected -= cosine[right] - np.logaddexp.reduce([cosine[right], *rivals])
    assert loss.item() == pytest.approx(expected, rel=1e-4)


def test_weights_of_another_shape_are_named_with_the_cure(dual: BiEncoder, tmp_path: Path) -> None:
    weights = dual.state_dict()
    name = next(name for name, tensor in weights.items() if tensor.ndim == 2)
    dual.save(tmp_path, {**weights, name: weights[name][:-1]})
    with pytest.raises(RunFolderError, match=r"don't fit its ranker.json .*size mismatch"):
        BiEncoder.load(tmp_path)


def test_candidates_without_a_label_are_no_rivals(store: TokenStore, dual: BiEncoder) -> None:
    """Pseudo-labelled pools leave candidates out."""
    whole = gold(store, 4)
    made = task(store, dual.eval(), [_only(pool, 2) for pool in whole])
    (batch,) = made.batches(0)
    assert all(len(example.candidates) == 2 for example in batch)
    smaller, larger = (t.losses(dual, t.batches(0)[0], CPU)[1].item() for t in (made, task(store, dual, whole)))
    assert smaller < larger


def _only(pool: PairLabels, number: int) -> PairLabels:
    right = int(np.flatnonzero(pool.labels)[0])
    kept = np.sort([right, *np.flatnonzero(pool.labels == 0)[: number - 1]])
    return replace(pool, candidates=pool.candidates[kept], labels=pool.labels[kept], intent_view=pool.intent_view[kept])


def test_each_epoch_draws_one_of_several_right_and_of_several_wrong_candidates(
    store: TokenStore, dual: BiEncoder
) -> None:
    pool, without = gold(store, 2)
    pools = [replace(pool, labels=np.array([1, 1, 0, 0])), replace(without, labels=np.zeros(4, int))]
    made = task(store, dual, pools, train_negatives=1)
    drawn = [example for epoch in range(30) for batch in made.batches(epoch) for example in batch]
    assert {example.row for example in drawn} == {pool.row}  # of a pool without a right one nothing can be learnt
    assert {tuple(example.candidates) for example in drawn} == {(0, 2), (0, 3), (1, 2), (1, 3)}


def test_parts_of_a_batch_change_nothing_but_rounding(store: TokenStore, tiny_bert: Path) -> None:
    weights: list[dict[str, torch.Tensor]] = []
    for accumulation in (1, 2, 4):
        dual = tiny_dual_encoder(tiny_bert, dropout=False)
        pools = [_only(pool, 2 + number % 3) for number, pool in enumerate(gold(store, 12))]
        made = task(store, dual, pools, gradient_accumulation=accumulation)
        training = settings(epochs=1, gradient_accumulation=accumulation).training
        train(dual, LocalEngine(dual, training), made, training, Silent(), seed=3, validation=None)
        weights.append({name: tensor.clone() for name, tensor in dual.state_dict().items()})
    for name, tensor in weights[0].items():
        for split in weights[1:]:
            torch.testing.assert_close(split[name], tensor, rtol=1e-3, atol=2e-5, msg=name)


def test_validation_is_the_same_however_many_workers_share_the_pools(store: TokenStore, dual: BiEncoder) -> None:
    validation = CosineValidation(store, range(3))
    alone, shared = (
        validation.metrics([sent(validation(dual, rank, number)) for rank in range(number)]) for number in (1, 4)
    )
    assert shared == pytest.approx(alone)


@pytest.mark.parametrize("few_texts", [0, 32])
@pytest.mark.parametrize(("num_passes", "partners"), [(2, {0: [0], 1: [1]}), (5, {0: [0, 2, 4], 3: [1, 3]})])
def test_passes_of_contexts_meet_those_of_candidates(
    store: TokenStore,
    dual: BiEncoder,
    monkeypatch: pytest.MonkeyPatch,
    num_passes: int,
    partners: dict[int, list[int]],
    few_texts: int,
) -> None:
    """Few texts have all their passes in one batch."""
    monkeypatch.setattr("icalib.models.bi_encoder._FEW_TEXTS", few_texts)
    pools, seeds = [store.pool(0)], list(range(num_passes))
    mean_TN, var_TN = dual.crossed_cosines(pools, seeds, "fp32")
    texts = [dual.layout.context_ids(pools[0].context, None), *pools[0].candidates]
    if few_texts:
        together = dual.vectors(texts * num_passes, dropout_seed=seeds[0])
        passes = list(together.reshape(num_passes, len(texts), -1))
    else:
        passes = [dual.vectors(texts, dropout_seed=seed) for seed in seeds]
    assert not np.allclose(passes[0], passes[1], atol=1e-3)
    for own, others in partners.items():
        cosines = np.stack([passes[other][1:] @ passes[own][0] for other in others])
        assert mean_TN[own] == pytest.approx(cosines.mean(0), abs=1e-6)
        assert var_TN[own] == pytest.approx(cosines.var(0, ddof=1) if len(others) > 1 else 0.0, abs=1e-6)


def test_a_soft_label_leaves_the_other_candidates_of_its_pool_their_part() -> None:
    vectors_BTD = torch.nn.functional.normalize(
        torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(1)), dim=-1
    )
    keys_BT = np.array([[1, 2, 3, 1], [4, 5, 4, 4]])  # the target again, and texts that only fill up
    found = in_batch_losses(vectors_BTD, keys_BT, np.array([4, 2]), 0.5, np.array([0.7, 1.0]))
    hard = in_batch_losses(vectors_BTD, keys_BT, np.array([4, 2]), 0.5)
    texts = vectors_BTD[:, 1:].flatten(0, 1)[[0, 1, 2, 4, 5]]
    log_prob = torch.log_softmax(vectors_BTD[0, 0] @ texts.T / 0.5, 0)
    assert hard[0].item() == pytest.approx(-log_prob[0].item())
    assert found[0].item() == pytest.approx(-(0.7 * log_prob[0] + 0.15 * log_prob[1] + 0.15 * log_prob[2]).item())
    assert found[1] == hard[1]


def test_soft_labels_are_of_unlabelled_pools_that_nothing_else_labels(store: TokenStore, tmp_path: Path) -> None:
    selection, order = Selection(labelled_fraction=0.5), store.column("label_order")
    rows, labelled = selection.rows("train", "unlabelled", order), selection.rows("train", "labelled", order)
    ids = store.column("pool_id")[[*rows[:3], labelled[0]]].tolist()
    table = {"pool_id": ids, "annotator": ["llm:m"] * 4, "candidate": [1, 2, 3, 0], "precision": [0.8] * 4}
    pq.write_table(pa.table(table, schema=SOFT_LABEL_SCHEMA), tmp_path / "soft.parquet")
    found = soft_labelled(tmp_path / "soft.parquet", store, selection, {int(rows[0])})
    assert [(pool.row, pool.labels.tolist(), pool.precision) for pool in found] == [
        (rows[1], [0, 0, 1, 0], 0.8),
        (rows[2], [0, 0, 0, 1], 0.8),
    ]
