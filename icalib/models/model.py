"""Base of the networks that the training loop trains: rankers of answers and generators of texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from torch import Tensor, nn


class Model(nn.Module):
    """A network that the training loop can train and that can be saved as a checkpoint."""

    def start_epoch(self) -> None:
        """Prepare for an epoch of training."""

    def start_part(self, *, counted: bool) -> None:
        """Prepare for this process' part of an update; `counted` is false if its examples have weight 0 in the loss."""

    def end_update(self) -> None:
        """Finish an update after all its parts; every process calls it."""

    @property
    def weights_read_elsewhere(self) -> Sequence[Tensor]:
        """Weights that are read outside the module that owns them; engines that shard weights need to know them."""
        return ()

    def whole(self, weights: Iterable[Tensor]) -> AbstractContextManager[Any]:
        """Return a context in which weights can be read at any time; engines that shard weights replace this."""
        return nullcontext()

    def save(self, folder: Path, state: dict[str, Tensor]) -> None:
        """Write a self-contained checkpoint of this model."""
        raise NotImplementedError
