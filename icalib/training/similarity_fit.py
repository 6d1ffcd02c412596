"""Initial slope and offset of the similarity start, from labelled pools."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from icalib.calibration.calibrator import Platt
from icalib.calibration.fitted import AffineMap
from icalib.core.seeding import child_seed
from icalib.data.encoding import TokenStore
from icalib.models.pool_inputs import PoolInputs
from icalib.models.precision import autocast, forward_batches, resolve_precision
from icalib.models.ranker import Ranker, make_batch
from icalib.training.examples import PairLabels, sampled_negatives
from icalib.training.settings import TrainingSettings

_MAX_POOLS = 200  # enough for two parameters


def fit_similarity_start(
    ranker: Ranker,
    pools: Sequence[PairLabels],
    store: TokenStore,
    settings: TrainingSettings,
    device: torch.device,
    seed: int,
) -> None:
    """Set slope and offset of a ranker's similarity start by Platt scaling on the first labelled pools.

    Training hardly moves them, since AdamW's steps are as large as the learning rate, and the range of the similarities
    depends on the backbone and on how it was post-trained. Pools have as many wrong candidates as in training. Without
    pairs of both labels the slope and offset stay as they are.
    """
    rng = np.random.default_rng(child_seed(seed, "similarity start"))
    kept = [sampled_negatives(pool, settings.train_negatives, rng) for pool in pools[:_MAX_POOLS]]
    label_N = np.concatenate([pool.labels for pool in kept])
    if ranker.similarity_start is None or len(set(label_N.tolist())) < 2:
        return
    was_training = ranker.training
    ranker.to(device).eval()
    similarity_N = _similarities(ranker, kept, store, settings, device)
    ranker.train(was_training)
    fitted = Platt(Platt.Config()).fit(similarity_N, label_N)
    assert isinstance(fitted, AffineMap)
    with torch.no_grad():
        ranker.similarity_start.slope.fill_(fitted.slope)
        ranker.similarity_start.offset.fill_(fitted.offset)


def _similarities(
    ranker: Ranker,
    pools: Sequence[PairLabels],
    store: TokenStore,
    settings: TrainingSettings,
    device: torch.device,
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the similarity [N] of each pair in its plain view."""
    layout = ranker.layout
    inputs = PoolInputs.of([store.pool(pool.row) for pool in pools], layout, None)
    similarity_N = np.zeros(inputs.num_pairs)
    precision = resolve_precision(settings.precision, device)
    with torch.inference_mode(), autocast(device, precision):
        for batch in forward_batches([len(ids) for ids, _ in inputs.inputs], settings.max_tokens_per_batch, device):
            made = make_batch([inputs.inputs[int(index)] for index in batch], layout, device)
            similarity_N[inputs.pairs(batch)] = ranker.similarities(made).cpu().numpy()
    chosen = np.concatenate([np.isin(np.arange(len(store.pool(p.row).candidates)), p.candidates) for p in pools])
    return similarity_N[chosen]
