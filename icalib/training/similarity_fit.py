"""Initial slope and offset of a ranker's logits, from labelled pools or from post-training's."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from icalib.calibration.affine_fit import fit_affine
from icalib.core.seeding import child_seed
from icalib.data.encoding import Encoded, TokenStore
from icalib.models.pool_inputs import PoolInputs
from icalib.models.precision import resolve_precision
from icalib.models.ranker import Ranker
from icalib.training.examples import PairLabels, sampled_negatives
from icalib.training.pairs import values_of_pairs
from icalib.training.settings import TrainingSettings

_POOLS_TO_FIT = 100  # enough for two parameters
_MAX_SLOPE = 100.0


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
    rng = np.random.default_rng(child_seed(seed, "similarity start"))
    kept = [sampled_negatives(pool, settings.train_negatives, rng) for pool in pools]
    label_N = np.concatenate([pool.labels for pool in kept])
    start = ranker.similarity_start
    if start is None or len(set(label_N.tolist())) < 2:
        return
    tokens = [store.pool(pool.row) for pool in kept]
    inputs = PoolInputs.of(tokens, ranker.layout, None)
    is_kept_N = np.concatenate(
        [np.isin(np.arange(len(one.candidates)), pool.candidates) for one, pool in zip(tokens, kept, strict=True)]
    )
    fits_slope = fits_slope and ranker.bi_encoder is not None
    similarity_NS = _values(ranker, inputs, settings, device).reshape(len(is_kept_N), -1)[is_kept_N]
    before = start.slope.detach().double().cpu().numpy()
    if has_head:
        logits_N = _values(ranker, inputs, settings, device, of_logits=True)[is_kept_N]
        added_N = logits_N - before[0] * similarity_NS[:, 0]
    else:
        logits_N, added_N = similarity_NS @ before + start.offset.item(), None
    if fits_slope:
        slope = fit_affine(similarity_NS[:, 0], label_N, added_N=added_N).slope
        logits_N = logits_N + (slope - before[0]) * similarity_NS[:, 0]
        with torch.no_grad():
            start.slope[0] = slope
    _add(start.offset, _offset(logits_N, label_N))


class MadePools(Protocol):
    """Pools of post-training, the right candidate of each first."""

    def batches(self, epoch: int) -> Sequence[Sequence[Any]]:
        """Return all batches of an epoch."""
        ...

    def pairs(self, example: Any) -> list[Encoded]:
        """Return the inputs of a pool."""
        ...


def fit_slope(ranker: Ranker, pools: MadePools, settings: TrainingSettings, device: torch.device) -> None:
    """Set the first slope of the similarity start to the one that makes the right candidates most likely.

    The likelihood is that of a softmax over each pool; other similarities keep their slope.
    """
    if ranker.similarity_start is None:
        return
    from scipy.optimize import minimize_scalar
    from scipy.special import logsumexp

    examples = islice((example for batch in pools.batches(0) for example in batch), _POOLS_TO_FIT)
    inputs = [pools.pairs(example) for example in examples]
    flat = [pair for pool in inputs for pair in pool]
    values_NS = _values(ranker, PoolInputs(flat, list(range(len(flat) + 1))), settings, device)
    values_PCS = values_NS.reshape(len(inputs), len(inputs[0]), -1)
    slopes = ranker.similarity_start.slope.detach().double().cpu().numpy()
    others_PC = values_PCS[:, :, 1:] @ slopes[1:]

    def loss(slope: float) -> float:
        logits_PC = slope * values_PCS[:, :, 0] + others_PC
        return float(np.mean(np.asarray(logsumexp(logits_PC, axis=1)) - logits_PC[:, 0]))

    found: Any = minimize_scalar(loss, bounds=(0.0, _MAX_SLOPE), method="bounded")
    with torch.no_grad():
        ranker.similarity_start.slope[0] = float(found.x)


def _add(parameter: Tensor, value: float) -> None:
    with torch.no_grad():
        parameter.add_(value)


def _offset(values_N: npt.NDArray[np.float64], label_N: npt.NDArray[np.int64]) -> float:
    """Return what to add to logits so that their mean probability is the fraction of right pairs."""
    from scipy.optimize import brentq
    from scipy.special import expit

    width = float(np.abs(values_N).max()) + 20.0

    def excess(offset: float) -> float:
        return float(expit(values_N + offset).mean() - label_N.mean())

    found: Any = brentq(excess, -width, width)
    return float(found)


def _values(
    ranker: Ranker, inputs: PoolInputs, settings: TrainingSettings, device: torch.device, *, of_logits: bool = False
) -> npt.NDArray[np.float64]:
    """Compute the similarities of pairs, or their logits, without dropout."""
    was_training = ranker.training
    ranker.to(device).eval()
    precision = resolve_precision(settings.precision, device)
    compute = ranker.answer_logits if of_logits else ranker.similarities
    values = values_of_pairs(compute, inputs, ranker.layout, device, precision, settings.max_tokens_per_batch)
    ranker.train(was_training)
    return values
