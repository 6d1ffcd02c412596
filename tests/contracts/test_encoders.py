"""What every encoder must do inside a ranker; a new one, of icalib or of a package outside of it, is discovered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.discovery import default_config, discovered
from helpers.scoring import score_pools
from helpers.tiny_models import BUDGET

from icalib.core.combination import DROPOUT
from icalib.data.encoding import TokenStore
from icalib.encoders.transformer import AbstractEncoder, TransformerEncoder
from icalib.losses.binary import BinaryCrossEntropy
from icalib.losses.listwise import PoolCrossEntropy
from icalib.models.checkpoint import RankerConfig, save_ranker
from icalib.models.ranker import PoolInputs, Ranker, load_ranker, make_batch
from icalib.scoring.cross import LoadedCross
from icalib.training.cross_encoder import answer_curriculum
from icalib.training.examples import gold_labels
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import AbstractEstimator, Deterministic, MCDropout

CPU = torch.device("cpu")


@pytest.fixture(params=discovered(AbstractEncoder), ids=lambda owner: owner.__name__)
def ranker(request: pytest.FixtureRequest, tiny_bert: Path) -> Ranker:
    torch.manual_seed(0)
    encoder: Any = default_config(request.param, backbone=str(tiny_bert), budget=BUDGET)
    link = "softmax" if encoder.whole_pools else "sigmoid"
    return Ranker(RankerConfig(encoder=encoder, link=link)).eval()


def test_every_candidate_is_scored_whatever_is_beside_it(ranker: Ranker, store: TokenStore) -> None:
    """Padding and the other inputs of a batch change nothing but rounding."""
    together = scores(ranker, store, range(6))["logit_mean"]
    assert len(together) == 6 * 4
    assert torch.isfinite(torch.tensor(together)).all()
    for row in (0, 5):
        alone = scores(ranker, store, [row])["logit_mean"]
        assert alone == pytest.approx(together[4 * row : 4 * row + 4], abs=1e-5)


def test_a_batch_that_is_read_several_times_at_once_scores_as_by_itself(ranker: Ranker, store: TokenStore) -> None:
    inputs = PoolInputs.of(list(store.pools(range(3))), ranker.layout, None).inputs
    batch = make_batch(inputs, ranker.layout, CPU)
    with torch.inference_mode():
        alone_B = ranker.answer_logits(batch)
        together_B = ranker.answer_logits(batch.repeated(3))
    torch.testing.assert_close(together_B.view(3, -1), alone_B.expand(3, -1), rtol=1e-4, atol=1e-5)


def test_dropout_is_on_in_stochastic_passes_where_it_has_any(ranker: Ranker, store: TokenStore) -> None:
    variances = scores(ranker, store, [0, 1], MCDropout.Config(num_passes=4).build())["logit_var"]
    assert (max(variances) > 1e-9) == (DROPOUT in ranker.config.encoder.provides())


def test_training_has_a_gradient_for_every_parameter_that_learns(ranker: Ranker, store: TokenStore) -> None:
    settings = TrainingSettings(batch_size=4, precision="fp32")
    loss = (PoolCrossEntropy if ranker.config.encoder.whole_pools else BinaryCrossEntropy).Config().build()
    pools = gold_labels(store, [0, 1], with_intents=False)
    curriculum = answer_curriculum(pools, store, ranker.layout, loss, settings, num_intents=0, seed=0)
    ranker.train()
    for batch in curriculum.batches(0):
        ranker.zero_grad()
        _, total = curriculum.losses(ranker, batch, CPU)
        assert torch.isfinite(total)
        total.backward()
        learning = [(name, p) for name, p in ranker.named_parameters() if p.requires_grad]
        assert [name for name, parameter in learning if parameter.grad is None] == []


def test_a_checkpoint_scores_the_same(ranker: Ranker, store: TokenStore, tmp_path: Path) -> None:
    save_ranker(tmp_path, ranker.config, ranker.state_dict())
    assert scores(load_ranker(tmp_path), store, [2]) == scores(ranker, store, [2])


def test_what_is_pretrained_for_it_is_the_plain_cross_encoder(ranker: Ranker) -> None:
    if ranker.config.encoder.has_backbone:
        assert isinstance(ranker.config.encoder.for_domain_pretraining(), TransformerEncoder.Config)


def scores(
    ranker: Ranker, store: TokenStore, rows: Any, estimator: AbstractEstimator | None = None
) -> dict[str, list[Any]]:
    context = LoadedCross(
        ranker, estimator or Deterministic.Config().build(), CPU, "fp32", 8192
    )  # fmt: skip
    return score_pools(context, store, list(rows), with_intents=False, seed=0)[0].to_pydict()
