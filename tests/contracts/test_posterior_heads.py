"""What every head with a posterior must do: the posterior belongs to the weights that it was computed for.

A new head, of icalib or of a package outside of it, is discovered.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from helpers.discovery import default_config, discovered

from icalib.core.errors import PosteriorError
from icalib.heads.head import PosteriorHead
from icalib.losses.binary import BinaryCrossEntropy

WIDTH = 6
QUICK = {
    "RandomFeatureHead": {"num_features": 16},
    "PolyaGammaHead": {"num_chains": 2, "num_steps": 2, "prediction_steps": 2},
}
FEATURES = torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(0))
MEAN, LABELS = torch.zeros(8), torch.tensor([1.0, 0.0] * 4)


@pytest.fixture(params=discovered(PosteriorHead), ids=lambda owner: owner.__name__)
def head(request: pytest.FixtureRequest) -> PosteriorHead:
    torch.manual_seed(0)
    made = default_config(request.param, **QUICK.get(request.param.__name__, {})).build(width=WIDTH).eval()
    made.observe(FEATURES, MEAN, LABELS)
    made.condition([made.observations()], seed=0)
    return made


def learn(head: PosteriorHead) -> None:
    head.train().losses(FEATURES, MEAN, LABELS, BinaryCrossEntropy.Config().build())


def learn_something_else(head: PosteriorHead) -> None:
    head.train().touch(FEATURES, MEAN)


def load_weights(head: PosteriorHead) -> None:
    head.load_state_dict(head.state_dict())


@pytest.mark.parametrize("move", [learn, learn_something_else, load_weights])
def test_every_change_of_the_weights_makes_the_posterior_stale(
    head: PosteriorHead, move: Callable[[PosteriorHead], None]
) -> None:
    move(head)
    for refused in (lambda: head.eval().posterior(FEATURES, MEAN), head.posterior_state):
        with pytest.raises(PosteriorError, match=r"no posterior for its current weights.*--fresh"):
            refused()


def test_evaluation_leaves_the_posterior(head: PosteriorHead) -> None:
    before = head.posterior(FEATURES, MEAN)
    head.touch(FEATURES, MEAN)
    head.losses(FEATURES, MEAN, LABELS, BinaryCrossEntropy.Config().build())
    after = head.posterior(FEATURES, MEAN)
    torch.testing.assert_close(after.mean_SB, before.mean_SB)
    assert head.num_jitters == 0


def test_processes_that_share_the_pairs_find_the_posterior_of_one(head: PosteriorHead) -> None:
    whole, shares = head.posterior(FEATURES, MEAN), []
    for part in (slice(0, 3), slice(3, 8)):
        head.forget()
        head.observe(FEATURES[part], MEAN[part], LABELS[part])
        shares.append(head.observations())
    head.condition(shares, seed=0)
    joined = head.posterior(FEATURES, MEAN)
    torch.testing.assert_close(joined.mean_SB, whole.mean_SB, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(joined.var_SB, whole.var_SB, rtol=1e-4, atol=1e-4)


def test_a_posterior_and_the_weights_come_back_from_a_checkpoint(head: PosteriorHead) -> None:
    weights, posterior = head.state_dict(), head.posterior_state()
    torch.manual_seed(1)
    other = type(head)(head.config, width=WIDTH).eval()
    other.load_state_dict(weights)
    other.load_posterior_state(posterior)
    torch.testing.assert_close(other.posterior(FEATURES, MEAN).var_SB, head.posterior(FEATURES, MEAN).var_SB)
