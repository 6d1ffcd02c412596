"""Initial slope and offset of a ranker's logits, from labelled pools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from icalib.calibration.affine_fit import fit_affine
from icalib.core.seeding import child_seed
from icalib.data.encoding import TokenStore
from icalib.encoders.transformer import Batch
from icalib.inference.quadrature import probability_moments
from icalib.metrics.calibration import nll
from icalib.models.pool_inputs import PoolInputs
from icalib.models.precision import resolve_precision
from icalib.models.ranker import Ranker
from icalib.training.examples import PairLabels, sampled_negatives
from icalib.training.pairs import values_of_pairs
from icalib.training.settings import TrainingSettings

_POOLS_TO_FIT = 100  # enough for two parameters
_LARGEST_LOG_SLOPE = 15.0
_TINY = 1e-15


def drawn_to_fit(rows: Sequence[int], seed: int) -> list[int]:
    """Draw the rows of at most 100 pools to fit to: the files of pools may be sorted, e.g. by domain."""
    if len(rows) <= _POOLS_TO_FIT:
        return list(rows)
    rng = np.random.default_rng(child_seed(seed, "pools to fit"))
    return np.sort(rng.choice(np.asarray(rows), _POOLS_TO_FIT, replace=False)).tolist()


def fit_start(
    ranker: Ranker,
    pools: Sequence[PairLabels],
    store: TokenStore,
    settings: TrainingSettings,
    device: torch.device,
    seed: int,
    *,
    has_head: bool,
    fits_slope: bool,
) -> None:
    """Fit slope and offset of a ranker's initial logits to pools of known labels, e.g. those of `drawn_to_fit`.

    Training hardly moves them, since AdamW's steps are as large as the learning rate, and the range of the similarities
    depends on the backbone and on how it was post-trained. The slope of the bi-encoder's similarity is that of Platt
    scaling; with the offset, the mean probability is the fraction of right pairs. The head and the similarity of
    jointly encoded pairs keep their scale: they say little before training, and with the slope that fits that, training
    could hardly teach them more. Pools have as many wrong candidates as in training. Without pairs of both labels, or
    without a similarity start, nothing changes.

    Args:
        has_head: whether the answer head is trained, too: then the fit counts what it adds. Otherwise the head, which
            knows nothing yet, is left out.
        fits_slope: fit the slope of the bi-encoder, too, and not the offset alone.
    """
    start, pairs = ranker.similarity_start, _Pairs.of(ranker, pools, store, settings, device, seed)
    if start is None or not pairs.has_both_labels:
        return
    label_N = pairs.label_N
    fits_slope = fits_slope and ranker.bi_encoder is not None
    similarity_NS = pairs.values(ranker.similarities).reshape(len(label_N), -1)
    before = start.slope.detach().double().cpu().numpy()
    if has_head:
        logits_N = pairs.values(ranker.answer_logits)
        added_N = logits_N - before[0] * similarity_NS[:, 0]
    else:
        logits_N, added_N = similarity_NS @ before + start.offset.item(), None
    if fits_slope:
        slope = fit_affine(similarity_NS[:, 0], label_N, added_N=added_N).slope
        logits_N = logits_N + (slope - before[0]) * similarity_NS[:, 0]
        with torch.no_grad():
            start.slope[0] = slope
    _add(start.offset, _offset(logits_N, label_N))


def fit_to_posterior(
    ranker: Ranker,
    pools: Sequence[PairLabels],
    store: TokenStore,
    settings: TrainingSettings,
    device: torch.device,
    seed: int,
    condition: Callable[[Ranker], None],
) -> None:
    """Fit slope and offset of a ranker's initial logits to what its head predicts, E σ(f) over the posterior of f.

    `fit_start`, which comes first, maps mean logits to probabilities; the posterior adds variance, and corrects the
    means by labels. Both are held fixed in the fit, which is kept where it makes the labels more likely once the
    posterior is computed again: a Gaussian process with labels takes back a part of every change of the offset. Without
    a bi-encoder only the offset is fitted.
    """
    start, pairs = ranker.similarity_start, _Pairs.of(ranker, pools, store, settings, device, seed)
    if start is None or not pairs.has_both_labels:
        return
    similarity_N = pairs.values(ranker.similarities).reshape(len(pairs.label_N), -1)[:, 0]
    if ranker.bi_encoder is None:
        similarity_N = np.zeros_like(similarity_N)  # any slope
    before = {name: tensor.clone() for name, tensor in start.state_dict().items()}
    mean_SN, var_SN = _posterior(ranker, pairs, condition)
    added_SN = mean_SN - before["slope"][0].item() * similarity_N - before["offset"].item()
    slope, offset = _most_likely(similarity_N, added_SN, var_SN, pairs.label_N)
    with torch.no_grad():
        if ranker.bi_encoder is not None:
            start.slope[0] = slope
        start.offset.fill_(offset)
    if _loss(*_posterior(ranker, pairs, condition), pairs.label_N) > _loss(mean_SN, var_SN, pairs.label_N):
        start.load_state_dict(before)
    head = ranker.posterior_head
    assert head is not None
    head.forget()


def _posterior(ranker: Ranker, pairs: _Pairs, condition: Callable[[Ranker], None]) -> tuple[Any, Any]:
    """Compute the means and variances [S, N] of the logits' posterior for the ranker's weights."""
    condition(ranker)
    mean_SN, var_SN = np.split(pairs.values(lambda batch: torch.cat(ranker.answer_posterior(batch)).T).T, 2)
    return mean_SN, var_SN


def _loss(mean_SN: npt.NDArray[np.float64], var_SN: npt.NDArray[np.float64], label_N: npt.NDArray[np.int64]) -> float:
    prob_N = probability_moments(torch.from_numpy(mean_SN), torch.from_numpy(var_SN)).mean.mean(0)
    return nll(prob_N.numpy(), label_N)


def _add(parameter: Tensor, value: float) -> None:
    with torch.no_grad():
        parameter.add_(value)


def _offset(values_N: npt.NDArray[np.float64], label_N: npt.NDArray[np.int64]) -> float:
    from scipy.optimize import brentq
    from scipy.special import expit

    width = float(np.abs(values_N).max()) + 20.0

    def excess(offset: float) -> float:
        return float(expit(values_N + offset).mean() - label_N.mean())

    found: Any = brentq(excess, -width, width)
    return float(found)


def _most_likely(
    similarity_N: npt.NDArray[np.float64],
    added_SN: npt.NDArray[np.float64],
    var_SN: npt.NDArray[np.float64],
    label_N: npt.NDArray[np.int64],
) -> tuple[float, float]:
    """Return the slope and offset under which labels are most likely, as `fit_affine` does for logits without variance.

    Args:
        added_SN: what is added to slope · similarity + offset to give the means of each pair's S Gaussian logits.
        label_N: 1 right, 0 wrong; targets are smoothed as in Platt scaling.
    """
    from scipy.optimize import minimize

    right, wrong = int(label_N.sum()), int((1 - label_N).sum())
    target_N = torch.from_numpy(np.where(label_N == 1, (right + 1) / (right + 2), 1 / (wrong + 2)))
    center, scale = float(similarity_N.mean()), float(similarity_N.std()) or 1.0
    scaled_N = torch.from_numpy((similarity_N - center) / scale)
    added, var = torch.from_numpy(added_SN), torch.from_numpy(var_SN)

    def loss_and_gradient(parameters: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        at = torch.tensor(parameters, requires_grad=True)
        prob_N = probability_moments(at[0].exp() * scaled_N + at[1] + added, var).mean.mean(0)
        loss = nn.functional.binary_cross_entropy(prob_N.clamp(_TINY, 1 - _TINY), target_N)
        (gradient,) = torch.autograd.grad(loss, at)
        return loss.item(), gradient.numpy()

    bounds = [(-_LARGEST_LOG_SLOPE, _LARGEST_LOG_SLOPE), (None, None)]
    best: Any = minimize(loss_and_gradient, np.zeros(2), jac=True, method="L-BFGS-B", bounds=bounds)
    slope = float(np.exp(best.x[0])) / scale
    return slope, float(best.x[1]) - slope * center


@dataclass(frozen=True)
class _Pairs:
    """Pairs of known labels, with as many wrong candidates as in training."""

    ranker: Ranker
    inputs: PoolInputs
    is_kept_M: npt.NDArray[np.bool_]
    label_N: npt.NDArray[np.int64]
    settings: TrainingSettings
    device: torch.device

    @classmethod
    def of(
        cls,
        ranker: Ranker,
        pools: Sequence[PairLabels],
        store: TokenStore,
        settings: TrainingSettings,
        device: torch.device,
        seed: int,
    ) -> _Pairs:
        rng = np.random.default_rng(child_seed(seed, "similarity start"))
        kept = [sampled_negatives(pool, settings.train_negatives, rng) for pool in pools]
        tokens = [store.pool(pool.row) for pool in kept]
        is_kept_M = [
            np.isin(np.arange(len(one.candidates)), pool.candidates) for one, pool in zip(tokens, kept, strict=True)
        ]
        label_N = np.concatenate([pool.labels for pool in kept])
        inputs = PoolInputs.of(tokens, ranker.layout, None)
        return cls(ranker, inputs, np.concatenate(is_kept_M), label_N, settings, device)

    @property
    def has_both_labels(self) -> bool:
        """Whether there is anything to fit to."""
        return 0 < self.label_N.sum() < len(self.label_N)

    def values(self, compute: Callable[[Batch], Tensor]) -> npt.NDArray[np.float64]:
        """Return what is computed of each kept pair, [N, ...]."""
        return _values(self.ranker, compute, self.inputs, self.settings, self.device)[self.is_kept_M]


def _values(
    ranker: Ranker,
    compute: Callable[[Batch], Tensor],
    inputs: PoolInputs,
    settings: TrainingSettings,
    device: torch.device,
) -> npt.NDArray[np.float64]:
    was_training = ranker.training
    ranker.to(device).eval()
    precision = resolve_precision(settings.precision, device)
    values = values_of_pairs(compute, inputs, ranker.layout, device, precision, settings.max_tokens_per_batch)
    ranker.train(was_training)
    return values
