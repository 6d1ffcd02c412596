"""Initial slope and offset of the similarity start, from labelled pools."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
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

_MAX_POOLS = 100  # enough for two parameters


def fit_similarity_start(
    ranker: Ranker,
    pools: Sequence[PairLabels],
    store: TokenStore,
    settings: TrainingSettings,
    device: torch.device,
    seed: int,
) -> None:
    """Set offset and first slope of a ranker's similarity start by Platt scaling on the first labelled pools.

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
    similarity_NS = _similarities(ranker, kept, store, settings, device)
    ranker.train(was_training)
    fitted = Platt(Platt.Config()).fit(similarity_NS[:, 0], label_N)
    assert isinstance(fitted, AffineMap)
    start = ranker.similarity_start
    with torch.no_grad():
        start.slope[0] = fitted.slope
        # Other similarities keep their slope, and change no logit on average.
        others = similarity_NS[:, 1:].mean(0) @ start.slope[1:].double().cpu().numpy()
        start.offset.fill_(fitted.offset - float(others))


def _similarities(
    ranker: Ranker,
    pools: Sequence[PairLabels],
    store: TokenStore,
    settings: TrainingSettings,
    device: torch.device,
) -> npt.NDArray[np.float64]:
    """Return the similarities [N, S] of each pair in its plain view."""
    layout = ranker.layout
    inputs = PoolInputs.of([store.pool(pool.row) for pool in pools], layout, None)
    start = ranker.similarity_start
    assert start is not None
    similarity_NS = np.zeros((inputs.num_pairs, len(start.slope)))
    precision = resolve_precision(settings.precision, device)
    with torch.inference_mode(), autocast(device, precision):
        for batch in forward_batches([len(ids) for ids, _ in inputs.inputs], settings.max_tokens_per_batch, device):
            made = make_batch([inputs.inputs[int(index)] for index in batch], layout, device)
            found = ranker.similarities(made).float().cpu().numpy()
            similarity_NS[inputs.pairs(batch)] = found.reshape(len(found), -1)
    chosen = np.concatenate([np.isin(np.arange(len(store.pool(p.row).candidates)), p.candidates) for p in pools])
    return similarity_NS[chosen]
