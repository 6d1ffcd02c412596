"""A device without values: what reads one back, or mixes devices, raises.

Tensors on `meta` have a shape, a dtype and a device, and nothing else. Code that runs on them neither forgets a
`.to(device)` nor waits for a GPU, as `.item()`, `.tolist()`, `bool(tensor)`, `nonzero` and masks as indices would.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from icalib.data.encoding import Encoded, TokenStore
from icalib.models.ranker import Ranker
from icalib.scoring.scorer import ScoringContext, score_pools
from icalib.training.loop import Curriculum

META = torch.device("meta")


@contextmanager
def _known_limits() -> Generator[None, None, None]:
    """Autocast knows no `meta`; and gpytorch waits once for each kernel, to compare the points that it is given."""
    with (
        patch.object(torch, "autocast", lambda *_, **__: nullcontext()),
        patch.object(torch, "equal", lambda left, right: left is right),
    ):
        yield


def update_on_meta(ranker: Ranker, curriculum: Curriculum) -> set[str]:
    """Compute the loss and its gradient of every batch of an epoch on `meta`; returns the tasks.

    Args:
        ranker: it stays on `meta`.
        curriculum: made for the ranker.
    """
    ranker.to(META).train()
    tasks: set[str] = set()
    with _known_limits():
        for batch in curriculum.batches(0):
            task, loss = curriculum.losses(ranker, batch, META)
            assert loss.device == META
            loss.backward()
            tasks.add(task)
    for name, parameter in ranker.named_parameters():
        assert parameter.grad is None or parameter.grad.device == META, name
    return tasks


def score_on_meta(context: ScoringContext, store: TokenStore, rows: Sequence[int], *, with_intents: bool) -> int:
    """Score pools on `meta` and return how often results were read back, in excess of once for each batch.

    Args:
        context: its ranker stays on `meta`.
        store: tokens of the pools.
        rows: the pools.
        with_intents: also predict intents and score the view that has them.
    """
    num_batches, num_reads = 0, 0
    batches, ranker = ScoringContext.batches, context.ranker.to(META)

    def counted(self: ScoringContext, inputs: Sequence[Encoded]) -> list[npt.NDArray[np.int64]]:
        nonlocal num_batches
        found = batches(self, inputs)
        num_batches += len(found)
        return found

    def read(tensor: Tensor, *_: Any, **__: Any) -> Tensor:
        nonlocal num_reads
        num_reads += 1
        return torch.zeros(tensor.shape, dtype=tensor.dtype)

    context = replace(context, ranker=ranker, device=META)
    with _known_limits(), patch.object(ScoringContext, "batches", counted), patch.object(Tensor, "cpu", read):
        score_pools(context, store, rows, with_intents=with_intents, seed=0)
    assert num_batches
    return num_reads - num_batches
