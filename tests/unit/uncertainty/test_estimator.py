from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.tiny_models import tiny_ranker, token_store
from torch import Tensor

from icalib.core.component import validated
from icalib.core.errors import SettingError
from icalib.data.encoding import TokenStore
from icalib.heads.head import LogitPosterior
from icalib.inference.mutual_information import binary_entropy
from icalib.models.ranker import Ranker
from icalib.scoring.scorer import ScoringContext, score_pools
from icalib.uncertainty.estimator import AbstractEstimator, Deterministic, MCDropout, Posterior

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


class MadeModel:
    """Logits by pass number, and a posterior; knows what it was asked."""

    def __init__(self, logits: Callable[[int], list[float]], posterior: LogitPosterior | None = None) -> None:
        self.asked: list[tuple[bool, int]] = []
        self.late: list[int] = []
        self._logits, self._posterior = logits, posterior

    def logits(self, *, stochastic: bool, number: int) -> Tensor:
        self.asked.append((stochastic, number))
        return torch.tensor(self._logits(number))

    def with_late_dropout(self, num_layers: int) -> MadeModel:
        self.late.append(num_layers)
        return self

    def posterior(self) -> LogitPosterior:
        assert self._posterior is not None
        return self._posterior


def test_a_deterministic_pass_has_no_variance_and_no_information() -> None:
    model = MadeModel(lambda _: [0.5, -3.0])
    result = Deterministic.Config().build().estimate(model)
    assert model.asked == [(False, 0)]
    torch.testing.assert_close(result.prob_mean, torch.sigmoid(torch.tensor([0.5, -3.0]).double()))
    for name in ("prob_var", "logit_var", "mutual_information"):
        assert getattr(result, name).tolist() == [0.0, 0.0]


def test_mc_dropout_asks_for_numbered_stochastic_passes_one_at_a_time() -> None:
    model = MadeModel(lambda number: [float(number)])
    result = MCDropout.Config(num_passes=3).build().estimate(model)
    assert model.asked == [(True, 0), (True, 1), (True, 2)]
    assert (result.logit_mean.item(), result.num_passes) == (1.0, 3)
    assert result.logit_var.item() == pytest.approx(2 / 3)  # 1/T, as the papers' code has it


@pytest.mark.parametrize(("layers", "late"), [(None, []), (0, [0]), (2, [2])])
def test_the_layers_below_late_dropout_are_asked_for_once(layers: int | None, late: list[int]) -> None:
    model = MadeModel(lambda number: [float(number)])
    MCDropout.Config(num_passes=3, dropout_layers=layers).build().estimate(model)
    assert (model.late, model.asked) == (late, [(True, 0), (True, 1), (True, 2)])


def made_posterior() -> LogitPosterior:
    generator = torch.Generator().manual_seed(0)
    return LogitPosterior(3 * torch.randn(2, 6, generator=generator), 5 * torch.rand(2, 6, generator=generator))


def test_a_posterior_is_integrated_in_one_pass() -> None:
    posterior = made_posterior()
    model = MadeModel(lambda _: [], posterior)
    result = Posterior.Config().build().estimate(model)
    draws = torch.randn(40_000, *posterior.mean_SB.shape, generator=torch.Generator().manual_seed(1))
    logits = (posterior.mean_SB + posterior.var_SB.sqrt() * draws).flatten(0, 1).double()
    probs = torch.sigmoid(logits)
    information = binary_entropy(probs.mean(0)) - binary_entropy(probs).mean(0)
    assert (result.num_passes, model.asked) == (1, [])
    torch.testing.assert_close(result.prob_mean, probs.mean(0), atol=5e-3, rtol=0)
    torch.testing.assert_close(result.prob_var, probs.var(0), atol=3e-3, rtol=0)
    torch.testing.assert_close(result.logit_mean, logits.mean(0), atol=3e-2, rtol=0)
    torch.testing.assert_close(result.logit_var, logits.var(0), atol=0, rtol=0.03)
    torch.testing.assert_close(result.mutual_information, information, atol=3e-3, rtol=0)


def test_the_mean_field_changes_the_mean_probability_alone() -> None:
    model = MadeModel(lambda _: [], made_posterior())
    exact, approximate = (
        Posterior.Config(integration=kind).build().estimate(model) for kind in ("quadrature", "mean_field")
    )
    difference = (exact.prob_mean - approximate.prob_mean).abs().max().item()
    assert 0 < difference < 0.012
    for name in ("prob_var", "logit_mean", "logit_var", "mutual_information"):
        assert torch.equal(getattr(exact, name), getattr(approximate, name))


def test_a_mean_field_without_its_factor_is_the_mode() -> None:
    mean = torch.tensor([[0.5, -3.0]])
    model = MadeModel(lambda _: [0.5, -3.0], LogitPosterior(mean, torch.full_like(mean, 7.0)))
    mode = Posterior.Config(integration="mean_field", mean_field_factor=0.0).build().estimate(model)
    torch.testing.assert_close(mode.prob_mean, Deterministic.Config().build().estimate(model).prob_mean)


def test_more_nodes_serve_larger_variances() -> None:
    mean = torch.tensor([[1.0]])
    model = MadeModel(lambda _: [], LogitPosterior(mean, torch.full_like(mean, 64.0)))
    found = [Posterior.Config(num_nodes=n).build().estimate(model).prob_mean.item() for n in (8, 200)]
    assert found[1] == pytest.approx(0.5487, abs=1e-3)
    assert abs(found[0] - found[1]) > 1e-3


def test_estimators_declare_what_they_need() -> None:
    assert [e.Config.needs for e in (Deterministic, MCDropout, Posterior)] == ["nothing", "dropout", "posterior"]


def test_mc_dropout_needs_two_passes() -> None:
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


def test_stochastic_passes_leave_bounded_weights_as_they_are(tiny_bert: Path, store: TokenStore) -> None:
    ranker = tiny_ranker(tiny_bert, spectral_norm={"scope": "all_linear", "bound": 0.1})
    before = {name: tensor.clone() for name, tensor in ranker.state_dict().items()}
    scores(ranker, store, FOUR)
    assert all(torch.equal(tensor, before[name]) for name, tensor in ranker.state_dict().items())


def test_eval_mode_is_restored_after_an_error(
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
