"""Score tables made by hand: pools of (p̄, g) pairs, in one view or two."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from icalib.scoring.scores import SCORE_SCHEMA, SHARD_INTENT_SCHEMA

Pools = Sequence[Sequence[tuple[float, float]]]
"""(p̄, g) of each candidate of each pool."""


def score_table(plain: Pools, intent: Pools | None = None, gold: Sequence[int] | None = None) -> pa.Table:
    """SCORE_SCHEMA; `gold` has the right candidate of each pool, −1 where it is unknown."""
    rows = []
    for view, pools in (("plain", plain), ("intent", intent or ())):
        for row, pool in enumerate(pools):
            right = gold[row] if gold is not None else -1
            for candidate, (prob, information) in enumerate(pool):
                rows.append(
                    {
                        "pool_id": f"p{row}",
                        "row": row,
                        "candidate": candidate,
                        "label": -1 if right < 0 else int(candidate == right),
                        "view": view,
                        "prob_mean": prob,
                        "prob_var": 0.01,
                        "logit_mean": float(np.log(max(prob, 1e-9) / max(1 - prob, 1e-9))),
                        "logit_var": 0.2,
                        "mutual_information": information,
                        "num_passes": 5,
                    }
                )
    return pa.Table.from_pylist(rows, schema=SCORE_SCHEMA)


def intent_table(num_pools: int) -> pa.Table:
    """SHARD_INTENT_SCHEMA of pools with one utterance each."""
    rows = [{"pool_id": f"p{row}", "row": row, "intents": [[0]]} for row in range(num_pools)]
    return pa.Table.from_pylist(rows, schema=SHARD_INTENT_SCHEMA)
