from __future__ import annotations

import math
import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from icalib.core.errors import PosteriorError
from icalib.heads.random_features import RandomFeatureHead
from icalib.losses.binary import BinaryCrossEntropy
from icalib.methods import sngp

WIDTH, NUM_FEATURES = 16, 64
LOSS = BinaryCrossEntropy.Config().build()
Pairs = tuple[Tensor, Tensor, Tensor]


def head(seed: int = 0, width: int = WIDTH, **settings: Any) -> RandomFeatureHead:
    torch.manual_seed(seed)
    return RandomFeatureHead.Config(**({"num_features": NUM_FEATURES} | settings)).build(width=width)


def made_pairs(num: int = 48, seed: int = 1) -> Pairs:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(num) % 2
    features = torch.randn(num, WIDTH, generator=generator) + torch.where(labels == 1, 1.0, -1.0)[:, None]
    return features, 0.3 * torch.randn(num, generator=generator), labels


def conditioned(model: RandomFeatureHead, *shares: Pairs) -> RandomFeatureHead:
    """A head whose posterior comes from pairs that as many processes observed."""
    model.eval()
    observed = []
    for pairs in shares:
        model.forget()
        model.observe(*pairs)
        observed.append(model.observations())
    model.condition(observed, seed=0)
    return model


def phi_of(model: RandomFeatureHead, features: Tensor) -> Tensor:
    """φ written out once more, in double."""
    dense = model.dense
    weight = dense.weight.double() * min(1.0, 0.95 / torch.linalg.matrix_norm(dense.weight.double(), 2).item())
    x = nn.functional.layer_norm(torch.tanh(features.double() @ weight.T + dense.bias.double()), [WIDTH])
    angles = x @ model.frequencies_LD.double().T / math.sqrt(WIDTH / 2) + model.phases_L.double()
    return math.sqrt(2 / NUM_FEATURES) * torch.cos(angles)


def test_the_exact_posterior_is_the_direct_computation() -> None:
    model, pairs = head(), made_pairs()
    conditioned(model, pairs)
    features, mean, _ = pairs
    phi = phi_of(model, features).detach()
    beta = model.coefficients.scaled_L.double().detach() * math.sqrt(NUM_FEATURES / 2)
    prob = torch.sigmoid(mean.double() + phi @ beta)
    precision = torch.eye(NUM_FEATURES) + sum(
        (p * (1 - p) * torch.outer(row, row) for p, row in zip(prob, phi, strict=True)), torch.zeros(())
    )
    test, test_mean, _ = made_pairs(10, seed=2)
    test_phi = phi_of(model, test).detach()
    found = model.posterior(test, test_mean)
    assert found.mean_SB.shape == found.var_SB.shape == (1, 10)
    assert torch.equal(found.mean_SB[0], model(test, test_mean))
    torch.testing.assert_close(found.mean_SB[0].double(), test_mean.double() + test_phi @ beta, rtol=1e-4, atol=1e-5)
    expected = torch.einsum("bl,lm,bm->b", test_phi, torch.linalg.inv(precision), test_phi)
    torch.testing.assert_close(found.var_SB[0].double(), expected, rtol=1e-4, atol=1e-6)


def test_limit_without_pairs_the_variance_is_the_priors() -> None:
    features, mean, _ = made_pairs(8, seed=2)
    nothing = tuple(column[:0] for column in made_pairs())
    prior = conditioned(head(num_features=1024, ridge=2.0), nothing).posterior(features, mean).var_SB  # type: ignore[arg-type]
    torch.testing.assert_close(prior, torch.full_like(prior, 0.5), rtol=0.15, atol=0)


def same_posterior(one: RandomFeatureHead, other: RandomFeatureHead) -> None:
    factors = (model.posterior_state()["factor"] for model in (one, other))
    torch.testing.assert_close(*factors, rtol=1e-4, atol=1e-5)


def test_the_precision_can_be_scaled_to_a_number_of_pairs() -> None:
    pairs = made_pairs(48)
    same_posterior(conditioned(head(effective_n=144.0), pairs), conditioned(head(), pairs, pairs, pairs))


def still(model: RandomFeatureHead, pairs: Pairs, sizes: list[int]) -> None:
    """Training steps that move no weights, so that every sum is known."""
    model.train()
    start = 0
    for size in sizes:
        model.losses(*(column[start : start + size] for column in pairs), LOSS)
        model.end_update()
        start += size


def test_the_moving_average_of_equal_steps_is_the_exact_sum() -> None:
    """Its start from 0 is corrected, however few the steps."""
    pairs = made_pairs(16)
    model = head(laplace="ema", dropout=0.0)
    with pytest.raises(PosteriorError, match=r"head\.laplace=exact"):
        model.eval().condition([{}], seed=0)  # no step was made
    model.start_epoch()
    for _ in range(5):
        still(model, pairs, [16])
    model.eval().condition([{}], seed=0)
    same_posterior(model, conditioned(head(dropout=0.0), *[pairs] * 5))


def test_the_moving_average_forgets_by_its_momentum() -> None:
    features, mean, labels = made_pairs(48)
    model = head(laplace="ema", dropout=0.0, ema_momentum=0.6, effective_n=100.0)
    model.start_epoch()
    still(model, (features, mean, labels), [16, 8, 24])
    model.eval().condition([{}], seed=0)
    phi, prob = phi_of(model, features), torch.sigmoid(model(features, mean).double())
    shares = torch.tensor([0.4 * 0.36 / 16, 0.4 * 0.6 / 8, 0.4 / 24]) / (1 - 0.6**3)
    weights = torch.repeat_interleave(shares, torch.tensor([16, 8, 24])) * prob * (1 - prob)
    precision = torch.eye(NUM_FEATURES, dtype=torch.float64) + 100 * phi.T @ (phi * weights[:, None])
    expected = torch.linalg.cholesky(precision).float().detach()
    torch.testing.assert_close(model.posterior_state()["factor"], expected, rtol=1e-4, atol=1e-5)


def test_an_update_is_one_step_however_many_parts_it_has() -> None:
    whole, split = head(laplace="ema", dropout=0.0), head(laplace="ema", dropout=0.0)
    pairs = made_pairs(48)
    still(whole, pairs, [16, 32])
    split.train()
    for update in ([(0, 5), (5, 16)], [(16, 20), (20, 40), (40, 48)], []):  # the last one has other tasks
        for start, stop in update:
            split.losses(*(column[start:stop] for column in pairs), LOSS)
        split.end_update()
    assert int(split.steps.num_steps) == 2
    torch.testing.assert_close(split.steps.moving_LL, whole.steps.moving_LL)


def test_an_interrupted_training_sums_the_same() -> None:
    pairs = made_pairs()
    whole, first = head(laplace="ema", dropout=0.0), head(laplace="ema", dropout=0.0)
    still(whole, pairs, [16, 16, 16])
    still(first, pairs, [16])
    resumed = head(seed=3, laplace="ema", dropout=0.0)
    resumed.load_state_dict(first.state_dict())
    still(resumed, tuple(column[16:] for column in pairs), [16, 16])  # type: ignore[arg-type]
    for model in (whole, resumed):
        model.eval().condition([{}], seed=0)
    assert torch.equal(whole.posterior_state()["factor"], resumed.posterior_state()["factor"])


def train_a_share(rank: int, store: Path, results: Any) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    model, pairs = head(laplace="ema", dropout=0.0), made_pairs()
    still(model, tuple(column[rank::2] for column in pairs), [8, 8, 8])  # type: ignore[arg-type]
    model.eval().condition([{}, {}], seed=0)
    results.put(model.posterior_state()["factor"].numpy())


def test_processes_that_share_the_pairs_all_hold_the_sums_of_one(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    workers = [context.Process(target=train_a_share, args=(rank, tmp_path / "store", results)) for rank in range(2)]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=60) for _ in range(2)]
    for worker in workers:
        worker.join(timeout=60)
    one = head(laplace="ema", dropout=0.0)
    still(one, made_pairs(), [16, 16, 16])
    one.eval().condition([{}], seed=0)
    for factor_LL in found:
        np.testing.assert_allclose(factor_LL, one.posterior_state()["factor"], rtol=1e-4, atol=1e-6)


def test_the_released_scaling_of_sngp_has_its_variances() -> None:
    """Its code: unscaled cosines ψ, the mean of ψψᵀ, a ridge s = 1/1000, and s ψᵀ(sI + mean ψψᵀ)⁻¹ψ."""
    settings = {
        name.removeprefix("head."): value for name, value in sngp.presets["released"].items() if "head." in name
    }
    assert settings.pop("num_features") * settings.pop("ridge") == 2
    model, pairs = head(**settings | {"laplace": "exact", "ridge": 2 / NUM_FEATURES}), made_pairs(200)
    conditioned(model, pairs)
    psi, ridge = math.sqrt(NUM_FEATURES / 2) * phi_of(model, pairs[0]).detach(), 1 / 1000
    precision = ridge * torch.eye(NUM_FEATURES, dtype=torch.float64) + psi.T @ psi / len(psi)
    expected = ridge * (psi * torch.linalg.solve(precision, psi.T).T).sum(1)
    torch.testing.assert_close(model.posterior(*pairs[:2]).var_SB[0].double(), expected, rtol=1e-3, atol=1e-6)


def test_limit_linear_features_without_bound_are_a_linear_layer_on_normed_tanh_with_laplaces_posterior() -> None:
    model = head(features="linear", spectral_bound=None, dropout=0.0).eval()
    features, mean, _ = pairs = made_pairs()
    normed = torch.nn.functional.layer_norm(torch.tanh(features), (WIDTH,))
    linear = torch.nn.Linear(WIDTH, 1, bias=False)
    linear.weight.data = model.coefficients.scaled_L.data[None] / math.sqrt(2)
    logits = mean + linear(normed)[:, 0]
    torch.testing.assert_close(model(features, mean), logits)
    model.observe(*pairs)
    model.condition([model.observations()], seed=0)
    prob = torch.sigmoid(logits)
    phi = normed / math.sqrt(WIDTH)
    precision = torch.eye(WIDTH) + phi.T @ ((prob * (1 - prob))[:, None] * phi)
    expected = torch.einsum("bd,de,be->b", phi, torch.linalg.inv(precision), phi)
    torch.testing.assert_close(model.posterior(features, mean).var_SB[0], expected, rtol=1e-4, atol=1e-6)
