from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.tiny_models import tiny_ranker, token_store
from torch import Tensor

from icalib.core.component import validated
from icalib.core.errors import SettingError
from icalib.data.encoding import TokenStore
from icalib.regimes.ranker import Ranker
from icalib.regimes.scoring import ScoringContext, score_pools
from icalib.uncertainty.estimator import AbstractEstimator, Deterministic, MCDropout

FOUR = MCDropout.Config(num_passes=4)


@pytest.fixture(scope="module")
def store(tiny_pools: Path, tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    return token_store(tiny_pools, "test", tiny_bert, tmp_path_factory.mktemp("tokens"))


def scores(
    ranker: Ranker, store: TokenStore, estimator: AbstractEstimator.Config, seed: int = 1
) -> dict[str, np.ndarray]:
    context = ScoringContext(ranker, ranker.layout, estimator.build(), torch.device("cpu"), "fp32", 2048)
    table, _ = score_pools(context, store, range(6), with_intents=False, seed=seed)
    return {name: table[name].to_numpy() for name in table.column_names}


def with_dropout(backbone: Path, folder: Path, hidden: float, attention: float) -> Path:
    shutil.copytree(backbone, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_dropout_prob": hidden, "attention_probs_dropout_prob": attention}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_deterministic_pass_has_no_variance_and_no_information() -> None:
    calls: list[tuple[bool, int]] = []

    def forward(stochastic: bool, number: int) -> Tensor:
        calls.append((stochastic, number))
        return torch.tensor([0.5, -3.0])

    result = Deterministic.Config().build().estimate(forward)
    assert calls == [(False, 0)]
    torch.testing.assert_close(result.prob_mean, torch.sigmoid(torch.tensor([0.5, -3.0]).double()))
    for name in ("prob_var", "logit_var", "mutual_information"):
        assert getattr(result, name).tolist() == [0.0, 0.0]


def test_mc_dropout_asks_for_numbered_stochastic_passes_one_at_a_time() -> None:
    calls: list[tuple[bool, int]] = []

    def forward(stochastic: bool, number: int) -> Tensor:
        calls.append((stochastic, number))
        return torch.tensor([float(number)])

    result = MCDropout.Config(num_passes=3).build().estimate(forward)
    assert calls == [(True, 0), (True, 1), (True, 2)]
    assert (result.logit_mean.item(), result.num_passes) == (1.0, 3)
    assert result.logit_var.item() == pytest.approx(2 / 3)  # 1/T, as the papers' code has it


def test_one_pass_is_no_mc_dropout() -> None:
    with pytest.raises(SettingError, match="num_passes"):
        validated(MCDropout.Config, {"num_passes": 1})


@pytest.mark.parametrize("cheap", [True, False])
@pytest.mark.parametrize(("hidden", "attention"), [(0.1, 0.1), (0.0, 0.3), (0.3, 0.0)])
def test_dropout_gives_variance_also_where_only_attention_has_any(
    tiny_bert: Path, store: TokenStore, tmp_path: Path, hidden: float, attention: float, cheap: bool
) -> None:
    backbone = with_dropout(tiny_bert, tmp_path / "backbone", hidden, attention)
    columns = scores(tiny_ranker(backbone, cheap_dropout=cheap), store, FOUR)
    assert (columns["logit_var"] > 0).all()
    assert (columns["prob_var"] > 0).all()
    assert (columns["mutual_information"] > 0).all()
    assert (columns["num_passes"] == 4).all()


def test_mc_dropout_with_dropout_0_equals_the_deterministic_pass(tiny_bert: Path, store: TokenStore) -> None:
    ranker = tiny_ranker(tiny_bert, dropout=0.0)
    mc, one = scores(ranker, store, FOUR), scores(ranker, store, Deterministic.Config())
    for name in ("logit_var", "prob_var"):
        assert (mc[name] == 0).all()
    np.testing.assert_allclose(mc["mutual_information"], 0, atol=1e-15)
    np.testing.assert_allclose(mc["logit_mean"], one["logit_mean"], rtol=1e-12)
    np.testing.assert_allclose(mc["prob_mean"], one["prob_mean"], rtol=1e-12)


def test_eval_mode_is_restored_even_after_a_fault(
    tiny_bert: Path, store: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranker = tiny_ranker(tiny_bert)
    scores(ranker, store, FOUR)
    assert not any(module.training for module in ranker.modules())

    def fail(batch: object) -> Tensor:
        raise RuntimeError

    monkeypatch.setattr(ranker, "answer_logits", fail)
    with pytest.raises(RuntimeError):
        scores(ranker, store, FOUR)
    assert not any(module.training for module in ranker.modules())


def test_a_shard_depends_on_its_seed_alone(tiny_bert: Path, store: TokenStore) -> None:
    ranker = tiny_ranker(tiny_bert)
    one = scores(ranker, store, FOUR, seed=1)
    torch.manual_seed(99)
    again, other = scores(ranker, store, FOUR, seed=1), scores(ranker, store, FOUR, seed=2)
    assert one["logit_mean"].tolist() == again["logit_mean"].tolist()
    assert one["logit_mean"].tolist() != other["logit_mean"].tolist()
