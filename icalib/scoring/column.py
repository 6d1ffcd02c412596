"""Columns: what one part of a ranker contributes to the logit of each pair.

The logit's distribution is an even mixture of S components, each with a mean and a variance: dropout has S passes of
variance 0, a Gaussian posterior one component, Gibbs chains one for each state. Columns of different parts are added
component by component, and S = 1 is repeated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import nn

from icalib.data.encoding import Intents, TokenPool
from icalib.heads.head import LogitPosterior
from icalib.metrics.pairs import pool_softmax
from icalib.scoring.scores import PAIR_FIELDS, moment_columns, pair_columns, score_table
from icalib.uncertainty.estimator import AbstractEstimator

Floats = npt.NDArray[np.float64]
View = Literal["plain", "intent"]

COLUMN_SCHEMA = pa.schema([*PAIR_FIELDS, ("mean", pa.list_(pa.float64())), ("var", pa.list_(pa.float64()))])
"""One row per pair and view; the lists have S values."""


@dataclass(frozen=True)
class Column:
    """Means and variances of the S components of N pairs' logits; [S, N] each."""

    mean_SN: Floats
    var_SN: Floats

    @classmethod
    def certain(cls, logit_N: Floats) -> Column:
        """Return the column of a part without uncertainty."""
        return cls(logit_N[None], np.zeros((1, len(logit_N))))

    @property
    def num_components(self) -> int:
        """S."""
        return len(self.mean_SN)

    def take(self, pairs: Any) -> Column:
        """Return the column of some of the pairs."""
        return Column(self.mean_SN[:, pairs], self.var_SN[:, pairs])


Columns = Mapping[View, Column]
"""A part's columns by view. A part without an intent view has the same values in both; one without a plain view has 0
there, since it reads intents."""


def in_view(columns: Columns, view: View, num_pairs: int) -> Column:
    """Return a part's column in a view."""
    if view in columns:
        return columns[view]
    return columns["plain"] if view == "intent" else Column.certain(np.zeros(num_pairs))


def added(columns: Sequence[Column], weights: Sequence[float], offset: float) -> Column:
    """Return b + Σ_k w_k part_k: means by w, variances by w²."""
    sizes = {column.num_components for column in columns} - {1}
    if len(sizes) > 1:
        raise ValueError(f"parts have {sorted(sizes)} components; expected one number, or 1")
    mean_SN = offset + sum(w * column.mean_SN for w, column in zip(weights, columns, strict=True))
    var_SN = sum(w * w * column.var_SN for w, column in zip(weights, columns, strict=True))
    mean_SN, var_SN = np.broadcast_arrays(mean_SN, var_SN)
    return Column(np.ascontiguousarray(mean_SN), np.ascontiguousarray(var_SN))


def joined(columns: Sequence[Column]) -> Column:
    """Return the column of all pairs of some columns of one part."""
    return Column(*(np.concatenate([getattr(c, name) for c in columns], 1) for name in ("mean_SN", "var_SN")))


def column_table(pools: Sequence[TokenPool], columns: Columns) -> pa.Table:
    """Return COLUMN_SCHEMA of a part's columns of some pools."""
    tables: list[pa.Table] = []
    for view, column in columns.items():
        names = pair_columns(pools, [pool.row for pool in pools], view)
        values = {"mean": _lists(column.mean_SN), "var": _lists(column.var_SN)}
        tables.append(pa.table(names | values, schema=COLUMN_SCHEMA))
    return pa.concat_tables(tables)


def _lists(values_SN: Floats) -> pa.Array:
    num_components, num_pairs = values_SN.shape
    offsets = np.arange(num_pairs + 1, dtype=np.int32) * num_components
    return pa.ListArray.from_arrays(offsets, np.ascontiguousarray(values_SN.T).reshape(-1))


def read_columns(table: pa.Table) -> dict[View, Column]:
    """Return the columns in a table (COLUMN_SCHEMA), whose pairs are in the same order in every view."""
    found: dict[View, Column] = {}
    for view in table["view"].unique().to_pylist():
        of_view = table.filter(pc.field("view") == view)
        found[view] = Column(*(_array(of_view[name]) for name in ("mean", "var")))
    return found


def _array(lists: pa.ChunkedArray) -> Floats:
    values = lists.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(values.reshape(len(lists), -1).T) if len(lists) else np.zeros((1, 0))


def scores_of_columns(
    names: Mapping[str, Any], columns: Columns, estimator: AbstractEstimator, *, softmax: bool
) -> pa.Table:
    """Return the scores (SCORE_SCHEMA) of pairs from the columns of the whole ranker, view by view.

    Args:
        names: what names the pairs (PAIR_FIELDS), pool by pool, in any view.
        softmax: probabilities are those of a softmax over a pool.
    """
    tables: list[pa.Table] = []
    for view, column in columns.items():
        components = LogitPosterior(torch.from_numpy(column.mean_SN), torch.from_numpy(column.var_SN))
        moments = moment_columns(estimator.moments(components))
        if softmax:
            moments["prob_mean"] = pool_softmax(moments["logit_mean"], pool_sizes(names["row"]))
        in_this_view = np.full(column.mean_SN.shape[1], view, dtype=object)
        tables.append(score_table({**names, "view": in_this_view, **moments}))
    return pa.concat_tables(tables)


def pool_sizes(row_N: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return the number of pairs of each pool, from the pools' rows."""
    rows = np.asarray(row_N)
    return np.diff(np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1], [True]])))


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
