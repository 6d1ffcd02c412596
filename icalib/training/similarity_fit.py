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
from icalib.models.precision import resolve_precision
from icalib.models.ranker import Ranker
from icalib.training.examples import PairLabels, sampled_negatives
from icalib.training.pairs import values_of_pairs
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
    tokens = [store.pool(pool.row) for pool in kept]
    inputs = PoolInputs.of(tokens, ranker.layout, None)
    is_kept_N = np.concatenate(
        [np.isin(np.arange(len(one.candidates)), pool.candidates) for one, pool in zip(tokens, kept, strict=True)]
    )
    was_training = ranker.training
    ranker.to(device).eval()
    precision = resolve_precision(settings.precision, device)
    similarity_N = values_of_pairs(
        ranker.similarities, inputs, ranker.layout, device, precision, settings.max_tokens_per_batch
    )
    ranker.train(was_training)
    similarity_NS = similarity_N.reshape(len(similarity_N), -1)[is_kept_N]
    fitted = Platt(Platt.Config()).fit(similarity_NS[:, 0], label_N)
    assert isinstance(fitted, AffineMap)
    start = ranker.similarity_start
    with torch.no_grad():
        start.slope[0] = fitted.slope
        # Other similarities keep their slope, and change no logit on average.
        others = similarity_NS[:, 1:].mean(0) @ start.slope[1:].double().cpu().numpy()
        start.offset.fill_(fitted.offset - float(others))
