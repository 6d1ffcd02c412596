from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from torch import Tensor

from icalib.core.errors import PosteriorError
from icalib.heads.polya_gamma import PolyaGammaHead
from icalib.inference import gibbs

WIDTH = 8
KERNELS = ["rbf", "matern", "linear"]


def make_head(**settings: Any) -> PolyaGammaHead:
    """A head whose posterior takes a third of the usual steps."""
    return PolyaGammaHead.Config(**{"prediction_steps": 7, **settings}).build(width=WIDTH)


def made_pairs(count: int = 16, *, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Features that tell the labels apart, a mean function of zeros, and labels in turn."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    features = torch.randn(count, WIDTH, generator=generator)
    features[:, 0] += 4.0 * labels - 2
    return features, torch.zeros(count), labels.float()


def conditioned(head: PolyaGammaHead, pairs: tuple[Tensor, Tensor, Tensor], *, seed: int = 1) -> PolyaGammaHead:
    head.eval().observe(*pairs)
    head.condition([head.observations()], seed=seed)
    return head


def losses(head: PolyaGammaHead, pairs: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    def never(logits: Tensor, labels: Tensor) -> Tensor:
        raise AssertionError("the head has an objective of its own")

    return head.losses(*pairs, never)


@pytest.mark.parametrize("kernel", KERNELS)
def test_losses_split_the_negative_evidence_of_the_batch_evenly(kernel: str) -> None:
    head, pairs = make_head(kernel=kernel), made_pairs()
    torch.manual_seed(3)
    shares = losses(head, pairs)
    assert not torch.equal(losses(head, pairs), shares)
    torch.manual_seed(3)  # of which they are a function
    generator = torch.Generator().manual_seed(int(torch.randint(2**62, ())))
    projected = torch.nn.functional.normalize(head.projection(pairs[0]), dim=-1)
    problem = gibbs.ChainProblem(head.kernel(projected, projected), pairs[1], pairs[2])
    chains = gibbs.run_chains(problem, num_chains=30, num_steps=10, generator=generator, method="series")
    evidence = gibbs.condition(problem, chains.omega_SN).log_evidence().mean()
    assert torch.allclose(shares, -evidence.expand(16) / 16, rtol=1e-5)


def test_limit_without_prior_variance_every_pair_costs_a_coin_toss() -> None:
    shares = losses(make_head(output_scale=1e-6), made_pairs())
    assert torch.allclose(shares, torch.tensor(2.0).log().expand(16), atol=1e-4)


def test_the_mean_function_is_corrected_only_near_the_support_set() -> None:
    features, mean, labels = made_pairs(32)
    head = conditioned(make_head(length_scale=0.1), (features, mean + 1, labels))
    far = -features[:2]
    posterior = head.posterior(far, torch.tensor([0.0, 2.0]))
    assert torch.allclose(posterior.mean_SB.mean(0), torch.tensor([0.0, 2.0]), atol=1e-6)
    assert torch.allclose(posterior.var_SB, torch.full((30, 2), 8.0), atol=1e-4)
    assert not torch.allclose(head(features, mean + 1), mean + 1, atol=0.5)


def test_an_empty_support_set_leaves_the_prior() -> None:
    head = make_head().eval()
    head.condition([head.observations()], seed=1)
    posterior = head.posterior(made_pairs(3)[0], torch.zeros(3))
    assert torch.equal(posterior.mean_SB, torch.zeros(30, 3))
    assert torch.allclose(posterior.var_SB, torch.full((30, 3), 8.0))


def test_chains_sampled_elsewhere_complete_the_same_posterior() -> None:
    pairs, head = made_pairs(24), make_head().eval()
    conditioned(here := make_head(), pairs)
    head.observe(*pairs)
    head.collect([head.observations()])
    with pytest.raises(PosteriorError, match="chains haven't been run"):
        head.posterior(*pairs[:2])
    tasks = pickle.loads(pickle.dumps(head.posterior_tasks(seed=1)))
    assert len(tasks) == gibbs.num_blocks(30)
    results = [task() for task in reversed(tasks)]
    head.take_results(results[::-1])
    assert torch.equal(head(*pairs[:2]), here(*pairs[:2]))


def test_half_precision_features_are_computed_in_single_under_autocast_and_in_inference_mode() -> None:
    features, mean, labels = made_pairs()
    features = features.bfloat16()
    head = make_head()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.manual_seed(1)
        inside = losses(head, (features, mean, labels))
        with torch.inference_mode():
            posterior = conditioned(head, (features, mean, labels)).posterior(features, mean)
    torch.manual_seed(1)
    outside = losses(head, (features.float(), mean, labels))
    assert torch.equal(outside, inside)
    assert outside.requires_grad
    assert inside.dtype == posterior.mean_SB.dtype == posterior.var_SB.dtype == torch.float32
    assert torch.equal(posterior.mean_SB, head.posterior(features.float(), mean).mean_SB)
