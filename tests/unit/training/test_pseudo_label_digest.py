from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icalib.core.run_tables import PSEUDO_LABEL_SCHEMA
from icalib.scoring.scorer import SHARD_INTENT_SCHEMA
from icalib.training.pseudo_labelled import pseudo_label_digest

PAIR: dict[str, Any] = {
    "pool_id": "p1", "candidate": 2, "label": 1, "gold": 1, "view": "intent", "rule": "confident", "prob": 0.9,
    "mutual_information": 0.01, "gain": 0.02,
}  # fmt: skip
PLAIN = {**PAIR, "pool_id": "p2", "view": "plain"}
INTENTS = {"p1": [[0], [3]], "p2": [[1], [1]]}


def write(folder: Path, pairs: list[dict[str, Any]], intents: dict[str, Any] = INTENTS) -> str:
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist(pairs, schema=PSEUDO_LABEL_SCHEMA), folder / "pseudo-000000.parquet")
    rows = [{"pool_id": name, "row": n, "intents": found} for n, (name, found) in enumerate(intents.items())]
    pq.write_table(pa.Table.from_pylist(rows, schema=SHARD_INTENT_SCHEMA), folder / "intents-000000.parquet")
    return pseudo_label_digest(folder)


@pytest.mark.parametrize(
    "same",
    [
        {"pairs": [{**PAIR, "gain": 0.5, "prob": 0.7, "rule": "calibrated", "gold": 0}, PLAIN]},
        {"pairs": [PAIR, PLAIN], "intents": {**INTENTS, "p2": [[2], [2]]}},  # nothing is learnt with p2's intents
        {"pairs": [PAIR, PLAIN], "intents": {**INTENTS, "p3": [[0], [0]]}},  # p3 wasn't selected
    ],
)
def test_what_is_not_learnt_does_not_count(tmp_path: Path, same: dict[str, Any]) -> None:
    assert write(tmp_path / "a", [PAIR, PLAIN]) == write(tmp_path / "b", **same)


@pytest.mark.parametrize(
    "other",
    [
        {"pairs": [PAIR]},
        {"pairs": [{**PAIR, "label": 0}, PLAIN]},
        {"pairs": [{**PAIR, "candidate": 1}, PLAIN]},
        {"pairs": [{**PAIR, "view": "plain"}, PLAIN]},
        {"pairs": [PLAIN, PAIR]},  # order decides the batches
        {"pairs": [PAIR, PLAIN], "intents": {**INTENTS, "p1": [[0], [2]]}},
    ],
)
def test_what_is_learnt_counts(tmp_path: Path, other: dict[str, Any]) -> None:
    assert write(tmp_path / "a", [PAIR, PLAIN]) != write(tmp_path / "b", **other)
