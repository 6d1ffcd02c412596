from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.artifacts import known
from helpers.observers import Silent
from helpers.tiny_models import BUDGET, tiny_ranker
from torch import Tensor
from torch.nn.functional import relu

from icalib.core.errors import SettingError
from icalib.core.files import read_json
from icalib.data.encoding import TokenStore
from icalib.data.generated import GeneratedStore
from icalib.data.selection import Selection
from icalib.encoders.backbone import Tokenizer
from icalib.generation.job import SUMMARY, GenerateJob, generated_texts, write_generated_tokens
from icalib.generation.retrieval import Retrieval
from icalib.losses.binary import AbstractLoss, BinaryCrossEntropy
from icalib.models.ranker import Ranker, make_batch
from icalib.training.contrast import (
    AbstractContrast,
    AugmentedCurriculum,
    ContrastLogits,
    GreyHinge,
    PseudoPositives,
    grey_hinge,
)
from icalib.training.examples import gold_labels
from icalib.training.local_engine import LocalEngine
from icalib.training.loop import train
from icalib.training.pairs import AnswerCurriculum
from icalib.training.settings import TrainingSettings

CPU = torch.device("cpu")
SELECTION = Selection(labelled_fraction=0.3)


@pytest.mark.parametrize(
    ("margin", "wide", "expected"), [(0.4, 0.8, 0.0), (0.5, 1.0, 0.0), (0.6, 1.0, 0.2), (0.2, 1.3, 0.3)]
)
def test_right_grey_and_random_in_order_cost_nothing_within_the_margins(
    margin: float, wide: float, expected: float
) -> None:
    right, grey, wrong = torch.tensor([1.0]), torch.tensor([[0.5]]), torch.tensor([0.0])
    loss = grey_hinge(right, grey, grey > 0, wrong, margin=margin, wide_margin=wide)
    assert loss.item() == pytest.approx(expected)


def test_without_margins_and_with_random_for_grey_it_is_the_pairwise_hinge() -> None:
    right, wrong = torch.randn(20), torch.randn(20)
    loss = grey_hinge(right, wrong[:, None], torch.ones(20, 1), wrong, margin=0, wide_margin=0)
    torch.testing.assert_close(loss, 2 * relu(wrong - right))  # once as grey, once as random


def test_grey_answers_count_by_their_mean_and_only_where_there_are_any() -> None:
    right, wrong, grey = torch.tensor([2.0, 2.0, 2.0]), torch.tensor([0.0, 0.0, 3.0]), torch.tensor([[3.0, 1.0]] * 3)
    exists = torch.tensor([[True, True], [False, True], [False, False]])
    loss = grey_hinge(right, grey, exists, wrong, margin=0.5, wide_margin=1.0)
    torch.testing.assert_close(loss, torch.tensor([(1.5 + 0 + 0 + 0) / 2, 0.0, 2.0]))


def test_pseudo_positives_are_the_pairwise_logistic_loss_between_true_and_false_contexts() -> None:
    wrong, own = torch.randn(30), torch.randn(30, 1)
    contrast = PseudoPositives.Config(temperature=0.7).build()
    printed = -torch.log(torch.exp(own[:, 0] / 0.7) / (torch.exp(own[:, 0] / 0.7) + torch.exp(wrong / 0.7)))
    torch.testing.assert_close(contrast(wrong, ContrastLogits(own, torch.ones(30, 1, dtype=torch.bool))), printed)
    assert not contrast(wrong, ContrastLogits(own, torch.zeros(30, 1, dtype=torch.bool))).any()


def job(data: Path, **values: Any) -> GenerateJob:
    fields = {
        "data": known(data), "selection": SELECTION, "wanted": "grey_answers", "num_answers": 2,
        "generator": Retrieval.Config(pools_per_shard=10), "models": {},
    }  # fmt: skip
    return GenerateJob.model_validate(fields | values)


def generated(job: GenerateJob, folder: Path, backbone: Path) -> GeneratedStore:
    for index, shard in enumerate(job.shards()):
        job.compute_shard(index, shard, folder, CPU)
    write_generated_tokens(folder, folder / "generated.arrow", Tokenizer(str(backbone)), BUDGET)
    return GeneratedStore(folder / "generated.arrow")


@pytest.fixture(scope="module")
def texts(tiny_pools: Path, tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[Any, GeneratedStore]:
    """What each kind of contrast reads."""
    return {
        kind: generated(job(tiny_pools, wanted=wanted), tmp_path_factory.mktemp("texts"), tiny_bert)
        for kind, wanted in ((GreyHinge, "grey_answers"), (PseudoPositives, "pseudo_positives"))
    }


def test_what_is_made_up_can_be_read_and_comes_back_as_ids(tiny_pools: Path, tiny_bert: Path, tmp_path: Path) -> None:
    wanted = job(tiny_pools, wanted="pseudo_positives")
    store = generated(wanted, tmp_path, tiny_bert)
    tokenize = Tokenizer(str(tiny_bert))
    records = [record for table in generated_texts(tmp_path) for record in table.to_pylist()]
    assert len(records) == sum(map(len, wanted.shards()))
    for record in records:
        pool = store.pool(record["row"])
        expected = [ids[: BUDGET.max_candidate_tokens] for ids in tokenize(record["answers"])]
        assert [ids.tolist() for ids in pool.answers] == expected
        contexts = [tokenize(texts) if texts else [] for texts in record["contexts"]]
        assert [[ids.tolist() for ids in context] for context in pool.contexts] == contexts
    wanted.finish(tmp_path)
    summary = read_json(tmp_path / SUMMARY)
    assert (summary["num_pools"], summary["contexts"]) == (len(records), 3 * len(records))


def trained(
    store: TokenStore, backbone: Path, contrast: AbstractContrast | None, texts: GeneratedStore
) -> dict[str, Tensor]:
    ranker = tiny_ranker(backbone, dropout=0.0)
    settings = TrainingSettings(epochs=1, learning_rate=1e-3, batch_size=6, precision="fp32", train_negatives=2)
    given = curriculum(store, ranker, settings, contrast, texts)
    train(ranker, LocalEngine(ranker, settings), given, settings, Silent(), seed=1, validation=None)
    return {name: tensor.clone() for name, tensor in ranker.state_dict().items()}


def curriculum(
    store: TokenStore,
    ranker: Ranker,
    settings: TrainingSettings,
    contrast: AbstractContrast | None,
    texts: GeneratedStore,
) -> AnswerCurriculum:
    rows = SELECTION.rows("train", "labelled", store.column("label_order"))[:6]
    pools = gold_labels(store, rows, with_intents=False)
    given = (pools, store, ranker.layout, BinaryCrossEntropy.Config().build(), settings)
    if contrast is None:
        return AnswerCurriculum(*given, num_intents=0, seed=1)
    return AugmentedCurriculum(*given, num_intents=0, seed=1, contrast=contrast, generated=texts)


@pytest.mark.parametrize("kind", [GreyHinge, PseudoPositives])
def test_limit_a_contrast_without_weight_is_bert(
    kind: Any, store: TokenStore, tiny_bert: Path, texts: dict[Any, GeneratedStore]
) -> None:
    bert, without, weighted = (
        trained(store, tiny_bert, contrast, texts[kind])
        for contrast in (None, kind.Config(weight=0.0).build(), kind.Config().build())
    )
    for name, tensor in bert.items():
        if not name.endswith("key.bias"):  # softmax ignores it: its gradient is rounding, which Adam blows up
            torch.testing.assert_close(without[name], tensor, rtol=0, atol=2e-5, msg=name)
    assert max(float((weighted[name] - tensor).abs().max()) for name, tensor in bert.items()) > 1e-3


def expected_loss(contrast: AbstractContrast, ranker: Ranker, given: AugmentedCurriculum, example: Any) -> float:
    """The loss of one pair, from its own logits one by one."""
    pairs, _ = given._with_contrast_inputs([example])
    logits = [float(ranker.answer_logits(make_batch([pair], ranker.layout, CPU))) for pair in pairs]
    label = float(example.labels.labels[example.position])
    loss = math.log1p(math.exp(-logits[0] if label else logits[0]))
    if isinstance(contrast, PseudoPositives):
        return loss + sum(math.log1p(math.exp(logits[0] - other)) for other in logits[1:])
    if not label:
        return loss
    right, wrong, *greys = [1 / (1 + math.exp(-logit)) for logit in logits]
    loss += max(0.0, 0.4 - right + wrong)
    return loss + sum(max(0.0, 0.2 - right + g) + max(0.0, 0.2 - g + wrong) for g in greys) / len(greys)


@pytest.mark.parametrize("kind", [GreyHinge, PseudoPositives])
def test_a_batchs_loss_is_the_sum_of_its_pairs_and_their_contrasts(
    kind: Any, store: TokenStore, tiny_bert: Path, texts: dict[Any, GeneratedStore]
) -> None:
    ranker, contrast = tiny_ranker(tiny_bert), kind.Config().build()
    settings = TrainingSettings(batch_size=6, precision="fp32", train_negatives=1)
    given = curriculum(store, ranker, settings, contrast, texts[kind])
    assert isinstance(given, AugmentedCurriculum)
    for batch in given.batches(0):
        with torch.inference_mode():
            task, loss = given.losses(ranker, batch, CPU)
            expected = sum(expected_loss(contrast, ranker, given, example) for example in batch)
        assert task == "answer_contrast"
        assert loss.item() == pytest.approx(expected, rel=1e-4)


class MeanLoss(AbstractLoss):
    def __call__(self, logits_B: Tensor, labels_B: Tensor) -> Tensor:
        return logits_B.mean()


def test_a_reduced_loss_isnt_added_to_the_contrast_of_each_pair(
    store: TokenStore, tiny_bert: Path, texts: dict[Any, GeneratedStore]
) -> None:
    ranker = tiny_ranker(tiny_bert)
    given = curriculum(store, ranker, TrainingSettings(batch_size=6), GreyHinge.Config().build(), texts[GreyHinge])
    given.loss = MeanLoss({})
    with pytest.raises(SettingError, match=r"the loss `.*MeanLoss` returned a tensor of shape \[\]; expected"):
        given.losses(ranker, given.batches(0)[0], CPU)
