from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.tiny_models import ranker_config
from helpers.train_jobs import answer_job
from scipy.special import expit

from icalib.heads.random_features import RandomFeatureHead
from icalib.inference.evidence import RIDGES
from icalib.models.checkpoint import read_posterior, save_ranker
from icalib.models.ranker import load_ranker
from icalib.training.local_engine import LocalEngine
from icalib.training.ridge_choice import shifted_nll


@pytest.mark.parametrize(("true_scale", "shift"), [(0.3, 0.0), (3.0, 0.0), (1.0, -2.0)])
def test_the_likelihood_is_best_with_the_variances_that_logits_have(true_scale: float, shift: float) -> None:
    """Whatever the shift of the prior odds between training and validation."""
    rng = np.random.default_rng(0)
    mean, spread = rng.normal(0, 4, 40_000), rng.gamma(1.0, 6.0, 40_000)
    label = (rng.random(40_000) < expit(mean + np.sqrt(true_scale * spread) * rng.normal(size=40_000))).astype(np.int64)
    scales = np.array([0.0, 0.1, 0.3, 1.0, 3.0, 10.0])
    best = scales[np.argmin([shifted_nll(mean - shift, scale * spread, label) for scale in scales])]
    if shift == 0.0:
        assert best == true_scale
    else:  # the variance acts on the logit that training knew, so the best scale is near
        assert 0.3 * true_scale <= best <= 3.4 * true_scale


def test_a_ranker_is_saved_with_the_ridge_that_suits_validation(tokens: Path, tiny_bert: Path, tmp_path: Path) -> None:
    head = RandomFeatureHead.Config(num_features=32, ridge=2.0, ridge_choice="validation")
    job = answer_job(tokens, ranker_config(tiny_bert).model_copy(update={"head": head}))
    training = job.prepare(torch.device("cpu"))
    save_ranker(tmp_path, job.ranker, training.model.state_dict())
    job.add_posterior(tmp_path, training, LocalEngine(training.model, job.training))
    state = read_posterior(tmp_path)
    assert float(state["ridge"]) in RIDGES[::5].float()
    loaded = load_ranker(tmp_path).posterior_head
    assert isinstance(loaded, RandomFeatureHead)
    assert loaded.ridge == float(state["ridge"])
    factor = state["factor"].double()
    smallest = torch.linalg.eigvalsh(factor @ factor.T).min()
    assert float(smallest) >= 0.99 * loaded.ridge  # P = τI + information
