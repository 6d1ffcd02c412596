"""Similarities of separately encoded pairs, computed once for all epochs of a training."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from icalib.data.encoding import TokenStore
from icalib.models.pool_inputs import PoolInputs
from icalib.models.precision import autocast, resolve_precision
from icalib.models.ranker import Ranker
from icalib.training.settings import TrainingSettings

_POOLS_TOGETHER = 256  # of which many have the same candidates


def remember_similarities(
    ranker: Ranker, store: TokenStore, rows: Sequence[int], settings: TrainingSettings, device: torch.device
) -> None:
    """Let a ranker's bi-encoder remember the similarities of the pairs of some pools.

    ZeRO stage 3 is left out: its workers must run the same passes, and their batches have different pairs.
    """
    if ranker.bi_encoder is None or settings.zero_stage == 3:
        return
    ranker.to(device)
    layout = ranker.layout
    with autocast(device, resolve_precision(settings.precision, device)):
        for start in range(0, len(rows), _POOLS_TOGETHER):
            pools = [store.pool(row) for row in rows[start : start + _POOLS_TOGETHER]]
            ranker.bi_encoder.remember(PoolInputs.of(pools, layout, None).inputs, device)
