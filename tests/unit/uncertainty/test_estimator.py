from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import numpy as np
import pytest
import torch
from helpers.estimators import estimated
from helpers.scoring import score_pools
from helpers.tiny_models import tiny_ranker
from torch import Tensor
from typing_extensions import override

from icalib.core.component import validated
from icalib.core.errors import SettingError
from icalib.data.encoding import TokenStore
from icalib.heads.head import LogitPosterior
from icalib.inference.moments import mixture_moments
from icalib.models.ranker import Ranker
from icalib.scoring.cross import LoadedCross
from icalib.uncertainty.estimator import AbstractEstimator, MCDropout, PairModel, Posterior

FOUR = MCDropout.Config(num_passes=4)
MOMENTS = ("prob_mean", "prob_var", "logit_mean", "logit_var", "mutual_information")


def scores(
    ranker: Ranker, store: TokenStore, estimator: AbstractEstimator.Config, seed: int = 1
) -> dict[str, np.ndarray]:
    context = LoadedCross(ranker, estimator.build(), torch.device("cpu"), "fp32", 2048)
    table, _ = score_pools(context, store, range(6), with_intents=False, seed=seed)
    return {name: table[name].to_numpy() for name in table.column_names}


@final
class Unfit(AbstractEstimator):
    """Returns what it is told to."""

    class Config(AbstractEstimator.Config):
        needs = "nothing"

    found: Any = None

    @override
    def components(self, model: PairModel) -> LogitPosterior:
        return self.found(len(model.logits()))


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (lambda _: None, "returned None"),
        (lambda B: (torch.zeros(1, B), torch.zeros(1, B)), r"returned \(tensor"),
        (lambda B: LogitPosterior(np.zeros((1, B)), np.zeros((1, B))), "returned LogitPosterior"),  # pyright: ignore
        (lambda B: LogitPosterior(torch.zeros(B), torch.zeros(B)), "returned tensors of shapes"),
        (lambda B: LogitPosterior(torch.zeros(B, 3), torch.zeros(B, 3)), "returned tensors of shapes"),
        (lambda B: LogitPosterior(torch.zeros(0, B), torch.zeros(0, B)), "returned tensors of shapes"),
        (lambda B: LogitPosterior(torch.zeros(1, B), -torch.ones(1, B)), "negative variances"),
        (lambda B: LogitPosterior(torch.full((1, B), torch.nan), torch.ones(1, B)), "aren't finite"),
    ],
)
def test_an_estimator_that_returns_something_else_is_named(
    tiny_bert: Path, store: TokenStore, found: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Unfit, "found", staticmethod(found))
    with pytest.raises(SettingError, match=rf"the estimator `{__name__}\.Unfit` .*{said}"):
        scores(tiny_ranker(tiny_bert), store, Unfit.Config())


def test_an_estimator_that_needs_something_unknown_is_refused() -> None:
    @final
    class Misspelt(AbstractEstimator):
        class Config(AbstractEstimator.Config):
            needs = "dropuot"  # pyright: ignore

    with pytest.raises(SettingError, match="is 'dropuot'; expected nothing, dropout, posterior"):
        validated(Misspelt.Config, {})


class MadeModel:
    """Logits by pass number, and a posterior."""

    def __init__(self, logits: Callable[[int], list[float]], posterior: LogitPosterior | None = None) -> None:
        self._logits, self._posterior = logits, posterior

    def logits(self) -> Tensor:
        return torch.tensor(self._logits(0))

    def dropout_logits(self, num_passes: int) -> Tensor:
        return torch.tensor([self._logits(number) for number in range(num_passes)])

    def posterior(self) -> LogitPosterior:
        assert self._posterior is not None
        return self._posterior


def test_mc_dropout_is_the_mean_of_its_passes() -> None:
    result = estimated(MCDropout.Config(num_passes=3), MadeModel(lambda number: [float(number)]))
    assert (result.logit_mean.item(), result.num_passes) == (1.0, 3)
    assert result.logit_var.item() == pytest.approx(2 / 3)  # 1/T, as the papers' code has it


def made_posterior() -> LogitPosterior:
    generator = torch.Generator().manual_seed(0)
    return LogitPosterior(3 * torch.randn(2, 6, generator=generator), 5 * torch.rand(2, 6, generator=generator))


def test_a_posterior_is_integrated_in_one_pass() -> None:
    posterior = made_posterior()
    model = MadeModel(lambda _: [], posterior)
    result = estimated(Posterior.Config(), model)
    assert result.num_passes == 1
    expected = mixture_moments(posterior.mean_SB.double(), posterior.var_SB.double())
    for name in MOMENTS:
        torch.testing.assert_close(getattr(result, name), getattr(expected, name))
    wide = MadeModel(lambda _: [], LogitPosterior(torch.ones(1, 1), torch.full((1, 1), 64.0)))
    few, many = (estimated(Posterior.Config(num_nodes=n), wide).prob_mean.item() for n in (8, 200))
    assert many == pytest.approx(0.5487, abs=1e-3)
    assert abs(few - many) > 1e-3


def test_the_mean_field_changes_the_mean_probability_alone() -> None:
    model = MadeModel(lambda _: [], made_posterior())
    exact, approximate = (estimated(Posterior.Config(integration=kind), model) for kind in ("quadrature", "mean_field"))
    assert 0 < (exact.prob_mean - approximate.prob_mean).abs().max().item() < 0.012
    for name in MOMENTS[1:]:
        assert torch.equal(getattr(exact, name), getattr(approximate, name))


def test_stochastic_passes_leave_the_model_as_it_is_also_after_an_error(
    tiny_bert: Path, store: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranker = tiny_ranker(tiny_bert, spectral_norm={"scope": "all_linear", "bound": 0.1})
    before = {name: tensor.clone() for name, tensor in ranker.state_dict().items()}
    scores(ranker, store, FOUR)
    assert all(torch.equal(tensor, before[name]) for name, tensor in ranker.state_dict().items())
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
