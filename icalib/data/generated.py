"""Generated texts as token ids, by the pool that they were generated for."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

import pyarrow as pa

from icalib.core.parquet import map_arrow
from icalib.data.encoding import Ids

GENERATED_TOKENS = "generated.arrow"
"""The texts as ids."""


ID_SCHEMA = pa.schema(
    [
        ("row", pa.int64()),
        ("answers", pa.list_(pa.list_(pa.int32()))),
        ("contexts", pa.list_(pa.list_(pa.list_(pa.int32())))),
    ]
)


class GeneratedPool(NamedTuple):
    """Texts generated for one pool, as ids; `contexts` has an entry for each candidate, empty where there is none."""

    answers: list[Ids]
    contexts: list[list[Ids]]


class GeneratedStore:
    """Texts as ids, mapped into memory, by the pool's row."""

    def __init__(self, path: Path) -> None:
        self._table = map_arrow(path)
        self._indices = {row: index for index, row in enumerate(self._table["row"].to_pylist())}

    def has(self, row: int) -> bool:
        """Return whether texts were generated for the pool in a row; not for those without a right candidate."""
        return row in self._indices

    def pool(self, row: int) -> GeneratedPool:
        """Return the texts generated for the pool in a row of the training split."""
        index = self._indices[row]
        answers, contexts = (self._table[name][index] for name in ("answers", "contexts"))
        return GeneratedPool(
            [answer.values.to_numpy() for answer in answers],
            [[utterance.values.to_numpy() for utterance in context] for context in contexts],
        )


TextKind = Literal["grey_answers", "pseudo_positives"]
"""What is generated. `grey_answers`: answers between right and random (GRAY). `pseudo_positives`: for a pool's context
another right answer, and for each wrong candidate a context that it would be right in (BIG)."""
