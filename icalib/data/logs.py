"""Logs: whole dialogues outside the pools, without labels or split, which domain pre-training may read.

A pool folder keeps them in `logs.parquet`, one row for each dialogue.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from icalib.core.errors import DataError
from icalib.core.files import atomic_write
from icalib.core.parquet import map_arrow
from icalib.data.encoding import Budget, IdLists, Ids, Lists, Numbers, Tokenize, distinct_ids, ids_by_text
from icalib.data.mining import Progress
from icalib.data.sources.records import OnReject, Source
from icalib.data.splits import text_key

LOGS_FILE = "logs.parquet"
LOG_TOKENS = "logs.arrow"
_LOG_SCHEMA = pa.schema([("dialog_id", pa.string()), ("utterances", pa.list_(pa.string()))])
_TOKEN_SCHEMA = pa.schema([("ids", pa.list_(pa.list_(pa.int32()))), ("keys", pa.list_(pa.uint64()))])
_ROW_GROUP = 1024


def write_logs(source: Source, path: Path, on_reject: OnReject | None, progress: Progress) -> int:
    """Write the dialogues of logs, without those of fewer than two utterances, and return their number."""
    rows = (
        {"dialog_id": dialogue.dialog_id, "utterances": [utterance.text for utterance in dialogue.utterances]}
        for dialogue in source.dialogues(on_reject)
        if len(dialogue.utterances) > 1
    )
    done = 0
    with pq.ParquetWriter(path, _LOG_SCHEMA, compression="zstd") as writer:
        while group := list(islice(rows, _ROW_GROUP)):
            writer.write_table(pa.Table.from_pylist(group, schema=_LOG_SCHEMA))
            done += len(group)
            progress("logs", done, None)
    if not done:
        raise DataError(
            "the logs contain no dialogue of two or more utterances",
            "Choose whole dialogues, not ready-made pools, or leave --logs out.",
            path=source.files[0],
        )
    progress("logs", done, done)
    return done


def write_log_tokens(path: Path, logs: Path, tokenize: Tokenize, budget: Budget) -> Iterator[int]:
    """Tokenise logs for `LogStore`, yielding the number of dialogues so far; utterances keep their end, as in pools."""
    done = 0
    try:
        with atomic_write(path) as temporary, pa.ipc.new_file(str(temporary), _TOKEN_SCHEMA) as writer:
            for batch in pq.ParquetFile(logs).iter_batches(batch_size=_ROW_GROUP):
                writer.write_batch(_token_batch(batch.column("utterances").to_pylist(), tokenize, budget))
                done += batch.num_rows
                yield done
    except pa.ArrowException as error:
        raise DataError(f"damaged ({error})", "Prepare the source again with --fresh.", path=logs) from error


def _token_batch(dialogues: list[list[str]], tokenize: Tokenize, budget: Budget) -> pa.RecordBatch:
    ids = ids_by_text(chain.from_iterable(dialogues), tokenize)
    rows = [
        {"ids": [ids[text][-budget.max_context_tokens :] for text in texts], "keys": list(map(text_key, texts))}
        for texts in dialogues
    ]
    return pa.RecordBatch.from_pylist(rows, schema=_TOKEN_SCHEMA)


class LogStore:
    """The dialogues of logs as ids, mapped into memory: a row is read when it is needed."""

    def __init__(self, path: Path) -> None:
        self._table = map_arrow(path)
        self._ids = IdLists(self._table["ids"])

    def __len__(self) -> int:
        return self._table.num_rows

    def keys(self) -> Lists:
        """Return the text keys of all dialogues' utterances."""
        return Lists.of(self._table["keys"])

    def token_ids(self) -> Numbers:
        """Return the distinct ids in all dialogues."""
        return distinct_ids(self._table.select(["ids"]))

    def utterances(self, row: int, start: int, stop: int) -> list[Ids]:
        """Return the token ids of some utterances of a dialogue."""
        return self._ids.at(row, start, stop)
