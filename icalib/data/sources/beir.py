"""BEIR and MTEB: a folder with `corpus`, `queries` and judgements, for reranking also with lists of candidates.

corpus        {"_id": str, "title": str, "text": str}
queries       {"_id": str, "text": str or a list of messages}
qrels         query-id, corpus-id, score (also under the name `default`); a file for each split
top_ranked    {"query-id": str, "corpus-ids": [str, ...]}

each as a file (JSONL, TSV, Parquet) or a folder of them, also one that the datasets library has saved. A query's
candidates are those of `top_ranked`, without it those that are judged; where none of them is wrong, `prepare` mines
wrong answers as it does for dialogues. What is not judged is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from icalib.core.errors import DataError
from icalib.core.invalid import abbreviated
from icalib.data.schema import Split
from icalib.data.sources.base import Reader, Source
from icalib.data.sources.files import plain_name
from icalib.data.sources.judged import Collection, collection_source, refused
from icalib.data.sources.question import parsed_number
from icalib.data.sources.records import Raw
from icalib.data.sources.rows import RowFile, read_rows, row_files, row_of
from icalib.data.sources.speakers import NO_SPEAKERS, Role

_NUM_TRIED = 1000
"""Judgements among which one must be of a wrong answer, or wrong ones are mined."""


def _open(path: Path, speakers: Mapping[str, Role] = NO_SPEAKERS) -> Source:
    parts = {name: _part(path, name) for name in ("corpus", "queries", "qrels", "default", "top_ranked")}
    qrels = parts["qrels"] or parts["default"]
    lists = parts["top_ranked"]
    if not (parts["corpus"] and parts["queries"] and qrels):
        raise DataError(
            "the folder needs corpus, queries and qrels",
            "Name the folder that holds them, e.g. corpus.jsonl, queries.jsonl and qrels/test.tsv.",
            path=path,
        )
    mined = not lists and not any(map(_is_wrong, islice(read_rows(qrels[0].path), _NUM_TRIED)))

    def load(collection: Collection) -> Iterator[Raw]:
        for name, table in (("corpus", "texts"), ("queries", "queries")):
            for file in parts[name]:
                yield from collection.add_texts(file.path, table)
        for file in lists:
            yield from refused(read_rows(file.path), lambda raw: _rank(collection, raw))
        for file in qrels:
            yield from refused(read_rows(file.path), lambda raw, split=file.split: _judge(collection, raw, split))

    files = [file.path for file in (*parts["corpus"], *parts["queries"], *lists, *qrels)]
    candidates = "top_ranked" if lists else "mined, since no judged text is wrong" if mined else "the judged texts"
    return collection_source(files, load, speakers, mined=mined, understood=f"candidates: {candidates}")


def _part(path: Path, name: str) -> tuple[RowFile, ...]:
    """Return the files of a part, which is a file or a folder with its name."""
    named = (
        [item for item in sorted(path.iterdir()) if plain_name(item).partition(".")[0] == name] if path.is_dir() else []
    )
    return row_files(named[0]) if named else ()


def _judge(collection: Collection, raw: Raw, split: Split | None) -> None:
    row = row_of(raw)
    collection.judge(raw, split, _id(raw, row, "query-id"), _id(raw, row, "corpus-id"), _score(raw, row))


def _rank(collection: Collection, raw: Raw) -> None:
    row = row_of(raw)
    query, texts = _id(raw, row, "query-id"), row.get("corpus-ids")
    if not isinstance(texts, list):
        raise raw.error(f"found {abbreviated(texts)} where a list was expected", field="corpus-ids")
    for place, text in enumerate(texts):
        collection.rank(query, str(text), -place)


def _id(raw: Raw, row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str | int) or not str(value).strip():
        raise raw.error(f"found {abbreviated(value)} as id", field=name)
    return str(value).strip()


def _score(raw: Raw, row: Mapping[str, Any]) -> float:
    number = parsed_number(row.get("score"))
    if number is None:
        raise raw.error(f"found {abbreviated(row.get('score'))}, expected a number", field="score")
    return number


def _is_wrong(raw: Raw) -> bool:
    try:
        return _score(raw, row_of(raw)) <= 0
    except DataError:
        return False


def _detects(path: Path) -> bool:
    names = {plain_name(item).partition(".")[0] for item in path.iterdir()} if path.is_dir() else set[str]()
    return {"corpus", "queries"} <= names and bool(names & {"qrels", "default"})


beir = Reader(_open, _detects, options=("speakers",))
