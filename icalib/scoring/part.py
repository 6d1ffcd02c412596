"""A part of a ranker, loaded to compute its column."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

from torch import nn

from icalib.data.encoding import Intents, TokenPool
from icalib.scoring.column import Columns
from icalib.uncertainty.estimator import AbstractEstimator


class LoadedPart(ABC):
    """Base of loaded parts; a column is a function of (checkpoint, estimator, pools, seed)."""

    @property
    @abstractmethod
    def module(self) -> nn.Module:
        """What computes the column, and has the parameters."""

    @abstractmethod
    def with_estimator(self, estimator: AbstractEstimator.Config) -> Self:
        """Return the same part, for another estimator to read."""

    @abstractmethod
    def columns(
        self, pools: Sequence[TokenPool], seed: int, *, with_intents: bool, known: Sequence[Intents] | None = None
    ) -> tuple[Columns, Sequence[Intents] | None]:
        """Return the part's columns of pools, and the intents of their utterances that it predicts or was given.

        Args:
            pools: of one shard.
            seed: determines every dropout mask; each shard needs its own.
            with_intents: whether a part that reads intents has a view with them.
            known: intents that an earlier part has predicted.
        """
