"""Queries, texts and judgements of a test collection, joined by their ids on disk."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from icalib.core.errors import DataError
from icalib.data.schema import Split
from icalib.data.sources.base import Source
from icalib.data.sources.files import read_lines
from icalib.data.sources.grouping import temporary_database
from icalib.data.sources.question import LONE_SURROGATE, NO_RIGHT, Question, passage, query_context, ranking_source
from icalib.data.sources.records import Raw, refuse_bad_bytes
from icalib.data.sources.rows import kind_of, read_rows, row_of
from icalib.data.sources.speakers import Role

_IDS = ("_id", "id", "docid", "doc_id", "pid", "qid", "query_id", "query-id", "corpus-id", "corpus_id")
_QUERIES = ("text", "query", "question", "title")


class Judged(NamedTuple):
    """A query with the ids of its answers in a collection."""

    collection: Collection
    query_id: str
    split: Split | None
    right: list[str]
    wrong: list[str]


class Collection:
    """The database that a test collection is read into: texts and queries by id, judgements, and ranked lists.

    Args:
        database: an empty one.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        for columns in (
            "texts (id TEXT PRIMARY KEY, text TEXT) WITHOUT ROWID",
            "queries (id TEXT PRIMARY KEY, query TEXT) WITHOUT ROWID",
            "judged (split TEXT, query TEXT, text TEXT, relevance REAL, path BLOB, line INTEGER, record TEXT)",
            "ranked (query TEXT, text TEXT, score REAL)",
        ):
            database.execute(f"CREATE TABLE {columns}")

    def add_texts(self, file: Path, table: str) -> Iterator[Raw]:
        """Read a file of `texts` or of `queries`, yielding the records that are not valid."""
        is_tsv = kind_of(file) == "csv"

        def add(raw: Raw) -> None:
            key, value = _in_tsv(raw) if is_tsv else _in_row(raw, table)
            if not key.strip():
                raise raw.error(f"found no id ({', '.join(_IDS)})")
            text = passage(value) if table == "texts" else json.dumps(value, default=str)
            self._database.execute(f"INSERT OR REPLACE INTO {table} VALUES (?, ?)", (key.strip(), text))

        return refused(read_lines(file) if is_tsv else read_rows(file), add)

    def judge(self, raw: Raw, split: Split | None, query: str, text: str, relevance: float) -> None:
        """Add a judgement."""
        record = (split, query, text, relevance, os.fsencode(raw.path), raw.line, raw.text)
        self._database.execute("INSERT INTO judged VALUES (?, ?, ?, ?, ?, ?, ?)", record)

    def rank(self, query: str, text: str, score: float) -> None:
        """Add an answer to a query's list, in which it comes before those with a lower score."""
        self._database.execute("INSERT INTO ranked VALUES (?, ?, ?)", (query, text, score))

    def queries(self) -> Iterator[Raw]:
        """Yield a record for each query that has judgements, in their order; the value is `Judged`."""
        self._database.execute("CREATE INDEX judged_query ON judged (query)")
        self._database.execute("CREATE INDEX ranked_query ON ranked (query)")
        first = "SELECT MIN(rowid), split, query, path, line, record FROM judged GROUP BY split, query ORDER BY 1"
        has_lists = self._database.execute("SELECT COUNT(*) FROM (SELECT 1 FROM ranked LIMIT 1)").fetchone()[0]
        for _, split, query, path, line, record in self._database.execute(first):
            judged = dict(
                self._database.execute(
                    "SELECT text, relevance FROM judged WHERE query = ? AND split IS ? ORDER BY rowid", (query, split)
                )
            )
            listed = self._database.execute(
                "SELECT text FROM ranked WHERE query = ? ORDER BY score DESC, rowid", (query,)
            )
            texts = [text for (text,) in listed] if has_lists else list(judged)
            right = [text for text in texts if judged.get(text, 0) > 0]
            wrong = [text for text in texts if judged.get(text, 0) <= 0]
            yield Raw(Path(os.fsdecode(path)), line, record, Judged(self, query, split, right, wrong))

    def num_unjudged(self) -> int:
        """Return the number of queries that have a list but no judgement."""
        unjudged = "SELECT COUNT(DISTINCT query) FROM ranked WHERE query NOT IN (SELECT query FROM judged)"
        return self._database.execute(unjudged).fetchone()[0]

    def text(self, raw: Raw, table: str, key: str) -> str:
        """Return a text or a query.

        Raises:
            DataError: there is none with this id.
        """
        found = self._database.execute(f"SELECT * FROM {table} WHERE id = ?", (key,)).fetchone()
        if found is None:
            raise raw.error(f'"{key}" has a judgement or a rank, but is not among the {table}')
        return found[1]


def collection_source(
    files: Iterable[Path],
    load: Callable[[Collection], Iterator[Raw]],
    speakers: Mapping[str, Role],
    *,
    mined: bool,
    understood: str,
) -> Source:
    """Return the source of a test collection.

    Args:
        files: everything that is read.
        load: fills a collection, yielding the records that are not valid.
        speakers: what speakers are, for queries that are lists of messages.
        mined: whether wrong answers are mined.
        understood: as in `Source`.
    """

    def read() -> Iterator[Raw]:
        with temporary_database() as database:
            collection = Collection(database)
            yield from load(collection)
            yield from collection.queries()
            source.left_out[NO_RIGHT] += collection.num_unjudged()

    def parse(raw: Raw) -> Question:
        if isinstance(raw.value, DataError):
            raise raw.value
        judged: Judged = raw.value
        query = json.loads(judged.collection.text(raw, "queries", judged.query_id))
        return Question(
            id=judged.query_id,
            pool_id=judged.query_id,
            context=query_context(raw, query, speakers, "query"),
            right=[judged.collection.text(raw, "texts", key) for key in judged.right],
            wrong=[judged.collection.text(raw, "texts", key) for key in judged.wrong],
            split=judged.split,
        )

    source = ranking_source(files, read, parse, mined=mined, understood=understood)
    return source


def refused(raws: Iterable[Raw], add: Callable[[Raw], None]) -> Iterator[Raw]:
    """Call `add` with every record and yield those for which it raises DataError, with the error as their value."""
    for raw in raws:
        try:
            refuse_bad_bytes(raw)
            add(raw)
        except DataError as error:
            yield Raw(raw.path, raw.line, raw.text, error)
        except UnicodeEncodeError:
            yield Raw(raw.path, raw.line, raw.text, raw.error(LONE_SURROGATE))


def _in_tsv(raw: Raw) -> tuple[str, str]:
    """Return id and text of a line."""
    key, tab, text = raw.text.partition("\t")
    if not tab:
        raise raw.error("found no tab between id and text")
    return key, " ".join(text.split("\t"))


def _in_row(raw: Raw, table: str) -> tuple[str, Any]:
    """Return a row's id, and the row itself or the query in it."""
    row = row_of(raw)
    key = next((str(row[name]) for name in _IDS if isinstance(row.get(name), str | int)), "")
    return key, row if table == "texts" else next((row[name] for name in _QUERIES if row.get(name)), "")
