"""Ready-made ranking data: queries with right and wrong answers, as other rerankers are trained on.

    {"query": str, "pos": [str], "neg": [str]}                                              FlagEmbedding
    {"query_id", "query", "positive_passages": [{"docid", "title", "text"}], "negative_passages": [...]}   tevatron
    (query, positive, negative, ...) or (query, passage, label)                             sentence-transformers

as JSONL, JSON, CSV, TSV, Parquet, or saved by the datasets library. A query may be a list of messages. Consecutive rows
of one query are one record, which becomes a pool with all its answers. Where nothing is wrong, `prepare` mines wrong
answers as it does for dialogues, for each right one separately.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from icalib.core.errors import DataError
from icalib.core.invalid import abbreviated
from icalib.data.schema import Split
from icalib.data.sources.base import Reader, Source
from icalib.data.sources.columns import NO_COLUMNS, check_columns, described, guessed_columns
from icalib.data.sources.conversations import own_id, own_split
from icalib.data.sources.grouping import joined
from icalib.data.sources.question import Question, parsed_number, passages, query_context, query_id, ranking_source
from icalib.data.sources.records import Raw
from icalib.data.sources.rows import first_rows, read_rows, record_id, row_files, row_of, sample_rows
from icalib.data.sources.speakers import NO_SPEAKERS, Role

COMMON: Mapping[str, tuple[str, ...]] = {
    "id": ("queryid", "qid", "questionid"),
    "query": ("query", "question", "anchor", "querytext", "context"),
    "positive": (
        "pos", "positive", "positives", "positivepassages", "positivepassage", "answer", "answers", "response",
        "positivectxs",
    ),
    "negative": ("neg", "negative", "negatives", "negativepassages", "negativepassage", "hardnegatives", "negative1"),
    "passage": ("passage", "document", "candidate", "passagetext", "text"),
    "label": ("label", "relevance", "relevant", "rel", "score"),
    "domain": ("domain", "category", "topic"),
    "split": ("split",),
}  # fmt: skip
"""Common names of columns, in lower case without spaces and signs; the most telling first."""
_RIGHT_ABOVE = 0.5
"""Labels above it are of right answers."""
_LABELS = {"true": 1.0, "yes": 1.0, "relevant": 1.0, "false": 0.0, "no": 0.0, "irrelevant": 0.0}


@dataclass(frozen=True)
class _Rows:
    """How the rows of a table are read."""

    columns: Mapping[str, str]
    negatives: tuple[str, ...]
    """All columns of wrong answers (`negative_1`, `negative_2`, ...)."""
    speakers: Mapping[str, Role]

    def key(self, raw: Raw) -> str:
        """Return what consecutive rows of one query have in common; unique for a row that is not valid."""
        try:
            row = row_of(raw)
            return repr((row.get(self.columns.get("id", "")), row.get(self.columns["query"])))
        except (DataError, RecursionError):
            return f"{raw.path}:{raw.line}:{raw.number}"

    def question(self, raw: Raw, split: Split | None) -> Question:
        """Return the rows of a query, `raw.value`, as one."""
        members: tuple[Raw, ...] = raw.value
        first = row_of(members[0])
        column = self.columns["query"]
        context = query_context(raw, first.get(column), self.speakers, column)
        right, wrong = list[str](), list[str]()
        for member in members:
            more_right, more_wrong = self._answers(member)
            right += more_right
            wrong += more_wrong
        return Question(
            id=own_id(first, (self.columns.get("id", ""),)) or query_id(context),
            pool_id=record_id(members[0]),
            context=context,
            right=right,
            wrong=wrong,
            domain=str(first.get(self.columns.get("domain", "")) or ""),
            split=split or own_split(first, self.columns.get("split", "split")),
        )

    def has_wrong(self, row: Mapping[str, Any]) -> bool:
        """Whether a row has a wrong answer."""
        if "label" in self.columns:
            label = _number(row.get(self.columns["label"]))
            return label is not None and label <= _RIGHT_ABOVE
        return any(passages(row.get(column)) for column in self.negatives)

    def _answers(self, raw: Raw) -> tuple[list[str], list[str]]:
        """Return the right and the wrong answers of a row."""
        row = row_of(raw)
        if "positive" in self.columns:
            wrong = [text for column in self.negatives for text in passages(row.get(column))]
            return passages(row.get(self.columns["positive"])), wrong
        texts = passages(row.get(self.columns["passage"]))
        column = self.columns["label"]
        label = _number(row.get(column))
        if label is None:
            raise raw.error(f"found {abbreviated(row.get(column))} as label, expected a number", field=column)
        return (texts, []) if label > _RIGHT_ABOVE else ([], texts)


def _number(label: Any) -> float | None:
    """Return a label that is a number or a word as a number; None for any other."""
    text = str(label).strip().lower()
    return _LABELS.get(text, parsed_number(text))


def _open(path: Path, speakers: Mapping[str, Role] = NO_SPEAKERS, columns: Mapping[str, str] = NO_COLUMNS) -> Source:
    splits: dict[Path, Split | None] = {file.path: file.split for file in row_files(path)}
    sample = sample_rows(path)
    names = list(dict.fromkeys(name for row in sample for name in row))
    found = _found(names, columns)
    required = ("query", "passage", "label") if "label" in found else ("query", "positive")
    check_columns(next(iter(splits)), names, COMMON, found, required, columns)
    rows = _Rows(found, _negatives(names, found), speakers)
    mined = not any(map(rows.has_wrong, sample))

    def read() -> Iterator[Raw]:
        for file in splits:
            for _, members in groupby(read_rows(file), key=rows.key):
                yield joined(list(members))

    def parse(raw: Raw) -> Question:
        return rows.question(raw, splits[raw.path])

    understood = described(found, columns) + ("; wrong answers are mined, since there are none" if mined else "")
    return ranking_source(splits, read, parse, mined=mined, understood=understood)


def _found(names: list[str], given: Mapping[str, str]) -> dict[str, str]:
    """Return the columns: those of right and wrong answers, else those of answers and labels."""
    found = guessed_columns(names, COMMON, given)
    unused = ("passage", "label") if "positive" in found else ("positive", "negative")
    return {column: name for column, name in found.items() if column not in unused}


def _negatives(names: list[str], found: Mapping[str, str]) -> tuple[str, ...]:
    """Return the column of wrong answers and those that differ from it in a number at the end alone."""
    if "negative" not in found:
        return ()
    stem = found["negative"].rstrip("0123456789")
    numbered = [name for name in names if name.startswith(stem) and name.removeprefix(stem).lstrip("_").isdigit()]
    return tuple(dict.fromkeys((found["negative"], *numbered)))


def _detects(path: Path) -> bool:
    rows = first_rows(path, 1)
    if not rows:
        return False
    found = _found(list(rows[0]), {})
    return "query" in found and ("positive" in found or {"passage", "label"} <= found.keys())


ranking = Reader(_open, _detects, options=("speakers", "columns"))
