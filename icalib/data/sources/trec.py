"""TREC: a folder of judgements, a run, texts and queries, told apart by their names.

*qrels*                            query-id 0 text-id relevance
*run*, *.trec                      query-id Q0 text-id rank score tag
*corpus*, *collection*, *docs*     id, tab, text; or JSONL with `id`, `title`, `text`
*queries*, *topics*                id, tab, text; or JSONL with `id` and `text`

A query's candidates are those of the run, best first. What is not judged is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from icalib.core.errors import DataError
from icalib.data.schema import Split
from icalib.data.sources.base import Reader, Source
from icalib.data.sources.files import plain_name, read_lines, split_in_name
from icalib.data.sources.judged import Collection, collection_source, refused
from icalib.data.sources.question import parsed_number
from icalib.data.sources.records import Raw
from icalib.data.sources.speakers import NO_SPEAKERS, Role

KINDS: Mapping[str, tuple[str, ...]] = {
    "qrels": ("qrels", "qrel"),
    "run": ("run", "trec"),
    "queries": ("queries", "topics"),
    "texts": ("corpus", "collection", "docs", "documents", "passages"),
}
"""Words of file names, by what the files hold; the first kind of which a name has a word is that of the file."""


def _open(path: Path, speakers: Mapping[str, Role] = NO_SPEAKERS) -> Source:
    files = _files(path)
    for kind, words in KINDS.items():
        if not files[kind]:
            raise DataError(
                f"the folder has no file with {' or '.join(words)} in its name",
                f"Put {', '.join(KINDS)} into one folder.",
                path=path,
            )

    def load(collection: Collection) -> Iterator[Raw]:
        for table in ("texts", "queries"):
            for file in files[table]:
                yield from collection.add_texts(file, table)
        for file in files["run"]:
            yield from refused(read_lines(file), lambda raw: _rank(collection, raw))
        for file in files["qrels"]:
            split = split_in_name(file)
            yield from refused(read_lines(file), lambda raw, split=split: _judge(collection, raw, split))

    everything = [file for kind in files.values() for file in kind]
    understood = "; ".join(f"{kind}: {', '.join(file.name for file in found)}" for kind, found in files.items())
    return collection_source(everything, load, speakers, mined=False, understood=understood)


def _files(path: Path) -> dict[str, list[Path]]:
    """Return a folder's files by what they hold."""
    found: dict[str, list[Path]] = {kind: [] for kind in KINDS}
    for file in sorted(path.iterdir()) if path.is_dir() else []:
        words = re.split(r"[^a-z]+", plain_name(file))
        kind = next((kind for kind, names in KINDS.items() if not {*words}.isdisjoint(names)), None)
        if kind and file.is_file():
            found[kind].append(file)
    return found


def _judge(collection: Collection, raw: Raw, split: Split | None) -> None:
    fields = raw.text.split()
    if len(fields) != 4:
        raise raw.error(f"found {len(fields)} fields, expected 4: query-id 0 text-id relevance")
    collection.judge(raw, split, fields[0], fields[2], _number(raw, fields[3], "relevance"))


def _rank(collection: Collection, raw: Raw) -> None:
    fields = raw.text.split()
    if len(fields) < 6:
        raise raw.error(f"found {len(fields)} fields, expected 6: query-id Q0 text-id rank score tag")
    collection.rank(fields[0], fields[2], _number(raw, fields[4], "score"))


def _number(raw: Raw, text: str, field: str) -> float:
    number = parsed_number(text)
    if number is None:
        raise raw.error(f'found "{text[:20]}", expected a number', field=field)
    return number


def _detects(path: Path) -> bool:
    files = _files(path)
    return bool(files["qrels"] and files["run"])


trec = Reader(_open, _detects, options=("speakers",))
