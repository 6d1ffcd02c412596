from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icalib.core.run_tables import PSEUDO_LABEL_SCHEMA
from icalib.scoring.scores import SHARD_INTENT_SCHEMA
from icalib.training.pseudo_labelled import pseudo_label_digest

PAIR: dict[str, Any] = {
    "pool_id": "p1", "candidate": 2, "label": 1, "gold": 1, "view": "intent", "rule": "confident", "prob": 0.9,
    "mutual_information": 0.01, "gain": 0.02,
}  # fmt: skip
PLAIN = {**PAIR, "pool_id": "p2", "view": "plain"}
INTENTS = {"p1": [[0], [3]], "p2": [[1], [1]]}


def write(folder: Path, pairs: list[dict[str, Any]], intents: dict[str, Any]) -> str:
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist(pairs, schema=PSEUDO_LABEL_SCHEMA), folder / "pseudo-000000.parquet")
    rows = [{"pool_id": name, "row": n, "intents": found} for n, (name, found) in enumerate(intents.items())]
    pq.write_table(pa.Table.from_pylist(rows, schema=SHARD_INTENT_SCHEMA), folder / "intents-000000.parquet")
    return pseudo_label_digest(folder)


@pytest.mark.parametrize(
    ("pairs", "intents", "same"),
    [
        ([{**PAIR, "gain": 0.5, "prob": 0.7, "rule": "calibrated", "gold": 0}, PLAIN], {}, True),
        ([PAIR, PLAIN], {"p2": [[2], [2]]}, True),  # nothing is learnt with p2's intents
        ([PAIR, PLAIN], {"p3": [[0], [0]]}, True),  # p3 wasn't selected
        ([PAIR], {}, False),
        ([{**PAIR, "label": 0}, PLAIN], {}, False),
        ([{**PAIR, "candidate": 1}, PLAIN], {}, False),
        ([{**PAIR, "view": "plain"}, PLAIN], {}, False),
        ([PLAIN, PAIR], {}, False),  # order decides the batches
        ([PAIR, PLAIN], {"p1": [[0], [2]]}, False),
    ],
)
def test_what_is_learnt_counts_and_nothing_else(
    tmp_path: Path, pairs: list[dict[str, Any]], intents: dict[str, Any], same: bool
) -> None:
    digests = write(tmp_path / "a", [PAIR, PLAIN], INTENTS), write(tmp_path / "b", pairs, {**INTENTS, **intents})
    assert (digests[0] == digests[1]) == same
