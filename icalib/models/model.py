"""What the training loop trains: a ranker of answers, or a generator of texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor, nn


class Model(nn.Module):
    """A network that the loop and its engines can train, and that can be kept as a checkpoint."""

    def start_epoch(self) -> None:
        """An epoch of training begins."""

    def start_part(self, *, counted: bool) -> None:
        """This process' part of an update begins; not `counted` if its examples only stand in for none."""

    @property
    def spectral_norms(self) -> Mapping[str, float]:
        """Spectral norms at load of the layers whose norm is bounded, by layer."""
        return {}

    @property
    def weights_read_elsewhere(self) -> Sequence[Tensor]:
        """Weights that are read outside the module that owns them; sharding engines must know."""
        return ()

    def save(self, folder: Path, state: dict[str, Tensor]) -> None:
        """Write a self-contained checkpoint of weights of this model.

        Args:
            state: the weights, named as in `state_dict`.
        """
        raise NotImplementedError
