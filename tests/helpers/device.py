"""A device without values: what reads one back, mixes devices, or waits for the device in another way, raises.

Tensors on `meta` have a shape, a dtype and a device, and nothing else. Code that runs on them neither forgets a
`.to(device)` nor waits for a GPU, as `.item()`, `.tolist()`, `bool(tensor)`, `nonzero` and masks as indices would.
`NoWaiting` names these, and raises on what `meta` allows and a GPU waits for: copies that don't say `non_blocking`,
and indices in the CPU's memory.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import torch
from helpers.scoring import score_pools
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from typing_extensions import override

from icalib.data.encoding import Encoded, TokenStore
from icalib.models.ranker import Ranker
from icalib.scoring.cross import LoadedCross
from icalib.training.local_engine import LocalEngine
from icalib.training.loop import Curriculum, _update
from icalib.training.settings import TrainingSettings

META = torch.device("meta")
_READS = {
    "_local_scalar_dense", "is_nonzero", "nonzero", "masked_select", "equal", "bincount",
    "_unique2", "unique_dim", "unique_consecutive", "repeat_interleave",
}  # fmt: skip
"""Operations whose result, or its shape, the CPU has to know: `item` is the first."""


class Waits(AssertionError):
    """The CPU would wait for the device here."""


class NoWaiting(TorchDispatchMode):
    """Raises `Waits` on operations for which the CPU would wait for all work that is queued on the device."""

    def __enter__(self) -> NoWaiting:
        self._copies = _NoHiddenCopies()
        self._copies.__enter__()
        return super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        self._copies.__exit__(*raised)

    @override
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        why = _why_it_waits(func.overloadpacket.__name__, args, kwargs)
        if why:
            raise Waits(f"{func}: {why}")
        return func(*args, **kwargs)


class _NoHiddenCopies(TorchFunctionMode):
    """Raises `Waits` on torch.tensor(values, device=…) and lists as indices, whose copies are not dispatched."""

    @override
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.tensor, torch.as_tensor) and torch.device(kwargs.get("device") or "cpu") == META:
            raise Waits(f"{func.__name__} with a device copies from memory that isn't pinned")
        if func in (Tensor.__getitem__, Tensor.__setitem__) and args[0].device == META:
            parts = args[1] if isinstance(args[1], tuple) else (args[1],)
            if any(isinstance(part, list | np.ndarray) for part in parts):
                raise Waits("an index in the CPU's memory is copied from memory that isn't pinned")
        return func(*args, **kwargs)


def _why_it_waits(name: str, args: Any, kwargs: Any) -> str:
    if not any(tensor.device == META for tensor in _tensors(args, kwargs)) and kwargs.get("device") != META:
        return ""
    if name in _READS:
        return "reads a value back"
    if name in ("index", "index_put", "index_put_", "_index_put_impl_"):
        indices = _tensors(args[1])
        if any(index.dtype in (torch.bool, torch.uint8) for index in indices):
            return "a mask as index: its number of elements is read back"
        if any(index.device != META for index in indices):
            return "an index in the CPU's memory is copied"
    if name == "_to_copy" and args[0].device != META and not kwargs.get("non_blocking"):
        return "a copy to the device without non_blocking"
    if name == "copy_" and args[1].device != args[0].device and not (len(args) > 2 and args[2]):
        return "a copy between devices without non_blocking"
    return ""


def _tensors(*parts: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(parts) if isinstance(leaf, Tensor)]


@contextmanager
def _known_limits() -> Generator[None, None, None]:
    """Autocast knows no `meta`, the fused AdamW neither."""
    with (
        patch.object(torch, "autocast", lambda *_, **__: nullcontext()),
        patch.object(torch.optim, "AdamW", partial(_without_kernel, torch.optim.AdamW)),
    ):
        yield


def _without_kernel(optimizer: Any, groups: Any, fused: bool) -> Any:
    assert fused
    return optimizer(groups, foreach=True)


def update_on_meta(ranker: Ranker, curriculum: Curriculum) -> set[str]:
    """Run the loop's update, optimiser step included, on every batch of an epoch on `meta`; returns the tasks.

    Args:
        ranker: it stays on `meta`.
        curriculum: made for the ranker.
    """
    settings = TrainingSettings(precision="fp32")
    tasks: set[str] = set()
    with _known_limits():
        engine = LocalEngine(ranker.train(), settings, META)
        for step, batch in enumerate(curriculum.batches(0)):
            with NoWaiting():
                task, loss, _ = _update(ranker, engine, curriculum, settings, batch, 0, step)
            assert loss.device == META
            tasks.add(task)
    for name, parameter in ranker.named_parameters():
        assert parameter.device == META, name
    return tasks


def score_on_meta(context: LoadedCross, store: TokenStore, rows: Sequence[int], *, with_intents: bool) -> int:
    """Score pools on `meta` and return how often results were read back, in excess of once for each batch.

    Args:
        context: its ranker stays on `meta`.
        store: tokens of the pools.
        rows: the pools.
        with_intents: also predict intents and score the view that has them.
    """
    num_batches, num_reads = 0, 0
    batches, ranker = LoadedCross.batches, context.ranker.to(META)

    def counted(self: LoadedCross, inputs: Sequence[Encoded]) -> list[npt.NDArray[np.int64]]:
        nonlocal num_batches
        found = batches(self, inputs)
        num_batches += len(found)
        return found

    def read(tensor: Tensor, *_: Any, **__: Any) -> Tensor:
        nonlocal num_reads
        if tensor.device != META:
            return tensor
        num_reads += 1
        return torch.zeros(tensor.shape, dtype=tensor.dtype)

    context = replace(context, ranker=ranker, device=META)
    patches = patch.object(LoadedCross, "batches", counted), patch.object(Tensor, "cpu", read)
    with _known_limits(), patches[0], patches[1], NoWaiting():
        score_pools(context, store, rows, with_intents=with_intents, seed=0)
    assert num_batches
    return num_reads - num_batches
