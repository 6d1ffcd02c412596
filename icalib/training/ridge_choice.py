"""Choosing the prior precision of a random-feature head by the likelihood of validation pairs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize_scalar

from icalib.data.encoding import TokenStore
from icalib.heads.random_features import RandomFeatureHead
from icalib.inference.evidence import RIDGES, decomposed
from icalib.inference.mixture import mixture_moments
from icalib.metrics.calibration import nll_from_logits
from icalib.metrics.pairs import FloatArray, IntArray
from icalib.models.pool_inputs import PoolInputs
from icalib.models.precision import resolve_precision
from icalib.models.ranker import Ranker
from icalib.training.pairs import values_of_pairs
from icalib.training.settings import TrainingSettings
from icalib.training.similarity_memory import remember_similarities

_EVERY = 5  # of the evidence's grid: half a decade
_LARGEST_SHIFT = 20.0


def choose_ridge(
    ranker: Ranker,
    head: RandomFeatureHead,
    store: TokenStore,
    rows: Sequence[int],
    settings: TrainingSettings,
    device: torch.device,
) -> None:
    """Set the head's ridge to the best one on validation pools, from one pass over them."""
    assert head.information_LL is not None
    ridges_R = RIDGES[::_EVERY].to(device)
    compute = partial(ranker.answer_variances, eigen=decomposed(head.information_LL), ridges_R=ridges_R)
    remember_similarities(ranker, store, rows, settings, device)
    pools = list(store.pools(rows))
    inputs = PoolInputs.of(pools, ranker.layout, None)
    precision: Any = resolve_precision(settings.precision, device)
    values = values_of_pairs(compute, inputs, ranker.layout, device, precision, settings.max_tokens_per_batch)
    label = np.concatenate([pool.is_right() for pool in pools]).astype(np.int64)
    losses = [shifted_nll(values[:, 0], var, label) for var in values[:, 1:].T]
    head.use_ridge(float(ridges_R[int(np.argmin(losses))]))


def shifted_nll(mean_N: FloatArray, var_N: FloatArray, label_N: IntArray) -> float:
    """Return the smallest negative log-likelihood of predictive probabilities E σ(f) over shifts of their logits.

    Args:
        label_N: 1 right, 0 wrong.
    """
    prob = mixture_moments(torch.from_numpy(mean_N)[None], torch.from_numpy(var_N)[None]).prob_mean
    logit = torch.logit(prob, eps=1e-15).numpy()
    best: Any = minimize_scalar(
        lambda shift: nll_from_logits(logit + shift, label_N),
        bounds=(-_LARGEST_SHIFT, _LARGEST_SHIFT),
        method="bounded",
    )
    return float(best.fun)
