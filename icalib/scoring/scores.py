"""Tables of scores: one row for each pair and view, with the moments of its logit and probability."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from typing_extensions import override

from icalib.core.parquet import read_parquet
from icalib.data.encoding import Intents, TokenPool
from icalib.data.schema import Pool, candidate_labels
from icalib.inference.moments import Moments, binary_entropy

PAIR_FIELDS = (
    ("pool_id", pa.string()),
    ("row", pa.int64()),  # the pool's row in its split
    ("candidate", pa.int32()),
    ("label", pa.int32()),  # gold: 1, 0, or −1 for unknown; for reports only, never used by a method
    ("view", pa.string()),
)
"""What names a pair."""

SCORE_SCHEMA = pa.schema(
    [
        *PAIR_FIELDS,
        ("prob_mean", pa.float64()),
        ("prob_var", pa.float64()),
        ("logit_mean", pa.float64()),
        ("logit_var", pa.float64()),
        ("mutual_information", pa.float64()),  # nats
        ("num_passes", pa.int32()),
        ("information_even", pa.float64()),  # g of the even passes, and of the odd ones; null without such halves
        ("information_odd", pa.float64()),
    ]
)
"""One row per pair and view."""

SHARD_INTENT_SCHEMA = pa.schema(
    [("pool_id", pa.string()), ("row", pa.int64()), ("intents", pa.list_(pa.list_(pa.int32())))]
)
"""One row per pool: the predicted intents of each utterance of its context."""

_MOMENTS = ("prob_mean", "prob_var", "logit_mean", "logit_var", "mutual_information")
_HALVES = ("information_even", "information_odd")


def moment_columns(moments: Moments) -> dict[str, npt.NDArray[np.float64]]:
    """Return the columns of SCORE_SCHEMA that are moments, [N] each; NaN without halves."""
    unknown = torch.full_like(moments.prob_mean, math.nan)
    halves = moments.half_information or (unknown, unknown)
    found = {name: getattr(moments, name) for name in _MOMENTS} | dict(zip(_HALVES, halves, strict=True))
    passes = torch.full_like(moments.prob_mean, moments.num_passes)
    return {name: values.cpu().numpy() for name, values in (found | {"num_passes": passes}).items()}


def score_table(columns: Mapping[str, Any]) -> pa.Table:
    """Return a table (SCORE_SCHEMA) of these columns; NaN becomes null."""
    arrays = [
        column if isinstance(column := columns[field.name], pa.ChunkedArray)
        else pa.array(column, field.type, from_pandas=True)
        for field in SCORE_SCHEMA
    ]  # fmt: skip
    return pa.table(arrays, schema=SCORE_SCHEMA)


def pair_columns(pools: Sequence[Pool] | Sequence[TokenPool], rows: Sequence[int], view: str) -> dict[str, Any]:
    """Return the columns that name the pairs of some pools (PAIR_FIELDS), whose rows in their split are given."""
    sizes = [len(pool.candidates) for pool in pools]
    return {
        "pool_id": np.repeat(np.array([pool.pool_id for pool in pools], dtype=object), sizes),
        "row": np.repeat(np.asarray(rows, np.int64), sizes),
        "candidate": np.concatenate([np.arange(size) for size in sizes]),
        "label": np.concatenate(
            [candidate_labels(pool.label, pool.also_right, len(pool.candidates)) for pool in pools]
        ),
        "view": np.full(sum(sizes), view, dtype=object),
    }


def intent_shard(pools: Sequence[TokenPool], intents: Sequence[Intents]) -> pa.Table:
    """Return SHARD_INTENT_SCHEMA of pools and the predicted intents of their utterances."""
    return pa.table(
        [[pool.pool_id for pool in pools], [pool.row for pool in pools], list(intents)], schema=SHARD_INTENT_SCHEMA
    )


def average_members(tables: Sequence[pa.Table]) -> pa.Table:
    """Average the members' scores of the same pairs (SCORE_SCHEMA): the moments of their even mixture.

    Each member's mean entropy is H(p̄) − g, so the mixture's mutual information follows from the members' p̄ and g.
    """
    if len(tables) == 1:
        return tables[0]
    prob, prob_var, logit, logit_var, information, passes = (
        np.stack([table[name].to_numpy() for table in tables])
        for name in ("prob_mean", "prob_var", "logit_mean", "logit_var", "mutual_information", "num_passes")
    )
    mean_entropy = (_entropy(prob) - information).mean(0)
    columns = {
        "prob_mean": prob.mean(0),
        "prob_var": prob_var.mean(0) + prob.var(0),  # law of total variance
        "logit_mean": logit.mean(0),
        "logit_var": logit_var.mean(0) + logit.var(0),
        "mutual_information": np.maximum(_entropy(prob.mean(0)) - mean_entropy, 0.0),
        "num_passes": passes.sum(0),
    }
    columns |= dict.fromkeys(_HALVES, np.full(tables[0].num_rows, np.nan))
    return score_table({name: tables[0][name] for name in SCORE_SCHEMA.names} | columns)


def _entropy(prob: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return binary_entropy(torch.from_numpy(prob)).numpy()


class Shards(Sequence[tuple[pa.Table, pa.Table | None]]):
    """A folder of scored shards (SCORE_SCHEMA and SHARD_INTENT_SCHEMA), or averages over those of several members.

    They are `scores-<n>.parquet`, and with intents also `intents-<n>.parquet`; one is read when it is asked for.
    """

    def __init__(self, *folders: Path) -> None:
        self._files = list(zip(*(sorted(folder.glob("scores-*.parquet")) for folder in folders), strict=True))

    def __len__(self) -> int:
        return len(self._files)

    @override
    def __getitem__(self, index: Any) -> Any:
        files = self._files[index]
        intents = intents_path(files[0])
        scores = average_members([read_parquet(path) for path in files])
        return scores, read_parquet(intents) if intents.is_file() else None


def intents_path(shard: Path) -> Path:
    """Return the file with the predicted intents of a shard of scores or of a column."""
    return shard.with_name(f"intents-{shard.name.partition('-')[2]}")
