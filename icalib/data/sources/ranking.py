"""Ready-made ranking data: queries with right and wrong answers, as other rerankers are trained on.

    {"context": str | [str] | [message], "candidates": [str], "label": index | [0 or 1, ...] | right text}
    {"query": str, "pos": [str], "neg": [str]}                                              FlagEmbedding
    {"prompt": [message], "chosen": [message], "rejected": [message]}                       TRL
    {"query_id", "query", "positive_passages": [{"title", "text"}], "negative_passages": [...]}          tevatron
    (query, positive, negative, ...) or (query, passage, label)                             sentence-transformers

as JSONL, JSON, CSV, TSV or Parquet. Consecutive rows of one query are one record, which
becomes a pool with all its answers. Where nothing is wrong in the first rows, `prepare` mines wrong answers as it does
for dialogues: each right one becomes a pool, in which the others don't occur.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, starmap
from pathlib import Path
from typing import Any, TypeGuard

from icalib.core.errors import DataError, SettingError
from icalib.core.text import abbreviated
from icalib.data.schema import AnsweredContext, Pool
from icalib.data.sources.messages import Role, text_of, turns
from icalib.data.sources.records import (
    Raw,
    Reader,
    Source,
    accepted,
    alternating,
    build,
    joined,
    pool_from,
    spaced,
    unique,
)
from icalib.data.sources.rows import (
    NUM_SAMPLED,
    check_columns,
    first_rows,
    guessed_columns,
    json_in,
    kind_of,
    own_id,
    plain_column,
    read_rows,
    record_id,
    row_files,
    row_of,
    sampled,
    split_of_rows,
    unchecked_row,
)
from icalib.data.splits import text_key, wording_key

COMMON: Mapping[str, tuple[str, ...]] = {
    "id": ("queryid", "qid", "questionid"),
    "dialogue": ("dialogid", "dialogueid", "conversationid"),
    "query": ("query", "question", "anchor", "querytext", "context", "prompt"),
    "positive": (
        "pos", "positive", "positives", "positivepassages", "positivepassage", "chosen", "answer", "answers",
        "response",
    ),
    "negative": (
        "neg", "negative", "negatives", "negativepassages", "negativepassage", "hardnegatives", "hardnegative",
        "rejected", "distractors", "incorrectanswers", "neg1", "negative1", "hardnegative1", "distractor1",
    ),
    "passage": ("candidates", "options", "choices", "passage", "document", "candidate", "passagetext", "text"),
    "label": ("label", "labels", "relevance", "relevant", "rel", "iscorrect", "correct", "isanswer", "score"),
    "domain": ("domain", "category", "topic"),
    "split": ("split",),
}  # fmt: skip
"""Common names of columns, in lower case without spaces and signs; the most telling first."""
_SIDES, _LABELLED = ("positive", "negative"), ("passage", "label")
_EITHER = {"answer", "answers", "response"}
"""Columns of right answers, unless there are labels, too."""
NO_RIGHT = "queries without a right answer"
NO_WRONG = "queries without a wrong answer"
ALSO_RIGHT = "wrong answers with the words of a right one"
LATE_WRONG = f"wrong answers, since the first {NUM_SAMPLED} rows have none: put a row with one before them to use them"
_PYTHON = re.compile(r"""\[\s*['"\[{].*['"\]}]\s*\]|\{\s*'.*\}""", re.DOTALL)
_RIGHT_ABOVE = 0.5  # labels above it are of right answers
_RENAME = "Give one of the files another name."
_SORT = (
    "Sort the rows by query: those of one must follow each other. Queries with the same text need --columns id=NAME."
)


@dataclass(frozen=True)
class _Table:
    columns: Mapping[str, str]
    negatives: tuple[str, ...]
    """All columns of wrong answers (`negative_1`, `negative_2`, ...)."""
    speakers: Mapping[str, Role]
    has_cells: bool = False
    """Whether a list is JSON in a cell, as in CSV."""
    left_out: Counter[str] = field(default_factory=Counter[str])

    def records(self, files: Iterable[Path]) -> Iterator[Raw]:
        """Yield the consecutive rows of each query as one record; a DataError if a query has rows with one answer each
        that are apart, since each record would lack the answers of the others.
        """
        for file in files:
            seen = set[int]()
            for key, members in groupby(read_rows(file), key=self._key):
                raw = joined(list(members))
                if isinstance(key, str) and self._has_one_answer(raw.value[0]):
                    if hash(key) in seen:
                        raise raw.error("found a query that other rows have further up", _SORT)
                    seen.add(hash(key))
                yield raw

    def pool(self, raw: Raw) -> Pool | None:
        """Return a pool of all answers; None where there is nothing to rank."""
        query, wrong = self._query(raw)
        right, dialog_id = query["answers"], query["dialog_id"]
        if not wrong or (not right and len(wrong) == 1):
            self.left_out[NO_WRONG if right else NO_RIGHT] += 1
            return None
        pool_id = f"{record_id(raw)}#0"
        return pool_from(raw, pool_id, query["split"], query["context"], right, wrong, query["domain"], dialog_id)

    def answers(self, raw: Raw) -> AnsweredContext | None:
        """Return the right answers; None where there is none."""
        query, wrong = self._query(raw)
        if wrong:
            self.left_out[LATE_WRONG] += len(wrong)
        if not query["answers"]:
            self.left_out[NO_RIGHT] += 1
            return None
        return build(AnsweredContext, query, raw)

    def has_wrong(self, row: Mapping[str, Any]) -> bool:
        """Whether a row has a wrong answer."""
        if "label" not in self.columns:
            return any(_passages(row.get(column)) for column in self.negatives)
        number = _number(row.get(self.columns["label"]))
        return isinstance(row.get(self.columns["passage"]), list) or (number is not None and number <= _RIGHT_ABOVE)

    def _key(self, raw: Raw) -> Hashable:
        """Return what rows of one query have in common, a text; unique for a row that can't be read."""
        try:
            row = unchecked_row(raw)
            return repr([row.get(self.columns.get(column, "")) for column in ("id", "dialogue", "query")])
        except (DataError, RecursionError):
            return raw.line, raw.number

    def _has_one_answer(self, raw: Raw) -> bool:
        if "label" not in self.columns:
            return False
        passage = unchecked_row(raw).get(self.columns["passage"])
        return not isinstance(json_in(passage) if self.has_cells else passage, list)

    def _row(self, raw: Raw) -> dict[str, Any]:
        """Return the row of a raw record with the lists that its cells hold."""
        row = row_of(raw)
        if not self.has_cells:
            return row
        for column in (*(self.columns.get(name, "") for name in ("query", *_SIDES, *_LABELLED)), *self.negatives):
            row |= {column: json_in(row[column])} if column in row else {}
            if isinstance(text := row.get(column), str) and _PYTHON.fullmatch(text.strip()):
                cure = f"Write lists as JSON, or the table as Parquet or JSON Lines. {raw.cure}."
                raise raw.error(f"found {abbreviated(text)}, a list as Python prints it", cure, column)
        return row

    def _query(self, raw: Raw) -> tuple[dict[str, Any], list[str]]:
        """Return the fields of an AnsweredContext, which may have no answer, and the wrong answers."""
        rows = [(member, self._row(member)) for member in raw.value]
        first = rows[0][1]
        context = self._context(raw, first.get(self.columns["query"]))
        chosen = first.get(self.columns.get("positive", ""))
        if _is_chat(chosen) and len(chosen) - 1 > len(context):  # preferences may repeat the prompt, or go on after it
            context = tuple(turns(raw, chosen[:-1], self.speakers, self.columns["positive"], self.left_out))
        labelled = list(chain.from_iterable(starmap(self._labelled, rows)))
        right = _distinct(text for text, is_right in labelled if is_right)
        wrong = _distinct(text for text, is_right in labelled if not is_right)
        text = " ".join(str(turn["text"]) for turn in context)
        own, dialogue = (own_id(first, self.columns.get(column, "")) for column in ("id", "dialogue"))
        key = f"query-{text_key(text):016x}"
        query = {
            "dialog_id": dialogue or own or key,
            "query_id": "-".join(filter(None, (dialogue, own, key))) if dialogue else own or key,
            "domain": text_of(first.get(self.columns.get("domain", ""))),
            "split": split_of_rows(rows, self.columns.get("split", "")),
            "context": context,
            "answers": right,
        }
        wordings = set(map(wording_key, right))
        different = [text for text in wrong if wording_key(text) not in wordings]
        if len(different) < len(wrong):
            self.left_out[ALSO_RIGHT] += len(wrong) - len(different)
        return query, different

    def _context(self, raw: Raw, query: Any) -> tuple[dict[str, Any], ...]:
        """Return a query as utterances: one of the user, or those of a list of texts or messages."""
        column = self.columns["query"]
        if isinstance(query, list) and query and all(isinstance(turn, str) for turn in query):
            return alternating(filter(str.strip, query))
        if isinstance(query, list) and query:
            return tuple(turns(raw, query, self.speakers, column, self.left_out))
        if isinstance(query, list) or not text_of(query).strip():
            raise raw.error(f"found {abbreviated(query)} as query", field=column)
        return ({"speaker": "user", "text": text_of(query)},)

    def _labelled(self, raw: Raw, row: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
        is_split = "positive" in self.columns
        for column in (self.columns["positive"], *self.negatives) if is_split else (self.columns["passage"],):
            for answer in _items(row.get(column)):
                if isinstance(answer, list) or (isinstance(answer, dict) and not _TEXTS & answer.keys()):
                    raise raw.error(f"found {abbreviated(answer)} as answer, which has no text", field=column)
        if is_split:
            yield from ((text, True) for text in _passages(row.get(self.columns["positive"])))
            yield from ((text, False) for column in self.negatives for text in _passages(row.get(column)))
            return
        column = self.columns["passage"]
        texts, label = row.get(column), row.get(self.columns["label"])
        if not isinstance(texts, list):
            texts, labels = [texts], [label]
        elif label in range(len(texts)) and not isinstance(label, bool):  # 1.0, too, as pandas has indices with gaps
            labels = [index == label for index in range(len(texts))]
        elif is_right := _is_among(label, texts):
            labels = is_right
        elif self.has_cells and str(label) in map(str, range(len(texts))):
            labels = [str(index) == label for index in range(len(texts))]
        else:
            labels = label if isinstance(label, list) else []
        numbers = [number for one in labels if (number := _number(one)) is not None]
        if len(numbers) != len(texts):
            raise raw.error(
                f"found {abbreviated(label)} as label",
                "Expected a number; for a list of candidates the index of the right one, from 0 to "
                f"{len(texts) - 1} here, its text, or a number for each.",
                self.columns["label"],
            )
        for text, number in zip(texts, numbers, strict=True):
            if number > _RIGHT_ABOVE and not _passage(text):
                raise raw.error(f"found {abbreviated(text)} as right answer, which has no text", field=column)
            yield _passage(text), number > _RIGHT_ABOVE


def _open(path: Path, speakers: Mapping[str, Role], columns: Mapping[str, str]) -> Source:
    files = row_files(path)
    sample, names = sampled(path)
    has_cells = kind_of(files[0]) == "csv"
    if has_cells:
        sample = [{name: json_in(value) for name, value in row.items()} for row in sample]
    found = _found(names, columns, sample)
    required = ("query", *_LABELLED) if {*_LABELLED} & found.keys() else ("query", "positive")
    negatives = _negatives(names, found)
    understood = check_columns(files, names, found, required, columns, negatives)
    if not {"label", "positive"} & columns.keys() and not {"label", "negative"} & found.keys():
        _refuse_unread_labels(files[0], sample, found)
    grades = _grades(sample, found) if "label" in found else []
    if not {0, 1}.issuperset(grades):
        understood += (
            f"; labels are from {grades[0]:g} to {grades[-1]:g}, and those above {_RIGHT_ABOVE} count as right"
        )
    table = _Table(found, negatives, speakers, has_cells)
    source = Source(files, keeps_all_candidates=False, understood=understood, left_out=table.left_out)
    if any(map(table.has_wrong, sample)):
        return replace(
            source,
            pools=lambda on_reject: accepted(table.records(files), unique(table.pool, "pool_id", _RENAME), on_reject),
        )
    if len(grades) > 1:
        raise _all_right(files[0], grades, found["label"])
    return replace(
        source,
        answers=lambda on_reject: accepted(table.records(files), unique(table.answers, "query_id", _SORT), on_reject),
        understood=f"{understood}; wrong answers are mined, since the first rows have none",
    )


def _found(names: Iterable[str], given: Mapping[str, str], sample: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the columns: those of right and wrong answers, or those of answers and labels.

    The user's choice says which; without one, labels of single answers do, or candidates that contain the answer.
    """
    found = guessed_columns(names, COMMON, given)
    if "label" not in given and _is_no_label(found.get("label", ""), sample, must_be="positive" not in found):
        found.pop("label", None)
    chosen = [one for one in (_SIDES, _LABELLED) if any(given.get(column) for column in one)]
    is_labelled = chosen == [_LABELLED] or "positive" not in found
    if not chosen and not is_labelled and "negative" not in found and plain_column(found["positive"]) in _EITHER:
        lists = {name: any(isinstance(row.get(name), list) for row in sample) for name in found.values()}
        is_labelled = "label" in found and "passage" not in found and not lists[found["positive"]]
        if "label" not in found and "passage" in found and lists[found["passage"]]:
            found["label"], is_labelled = found["positive"], True
    if is_labelled and "positive" in found:
        found.setdefault("passage", found["positive"])
    unused = _SIDES if is_labelled else _LABELLED
    return {column: name for column, name in found.items() if column not in unused}


def _refuse_unread_labels(file: Path, sample: Sequence[Mapping[str, Any]], found: Mapping[str, str]) -> None:
    """Refuse answers that are read as right ones beside a column that may say which of a query's are.

    That is one of 0 and 1, or with a name of labels or grades, whose values differ within a query.
    """
    query, *_ = keys = [found[column] for column in ("query", "id", "dialogue") if column in found]
    for name in dict.fromkeys(name for row in sample for name in row if name not in found.values()):
        values: dict[str, set[str]] = {}
        for row in sample:
            values.setdefault(repr([row.get(key) for key in keys]), set()).add(str(row.get(name)).strip().lower())
        is_named = plain_column(name) in (*COMMON["label"], "rating", "votes")
        is_binary = {_number(value) for one in values.values() for value in one} == {0, 1}
        if differing := next((one for one in values.values() if len(one) > 1 and (is_named or is_binary)), None):
            shown = " and ".join(sorted(differing)[:2])
            raise SettingError(
                f"{file}: answers of one `{query}` have {shown} as `{name}`, and no column of labels is known. If it "
                f"says which are right (above 0.5, true or yes), give --columns label={name}; if all are right, "
                "--columns label= (no name)."
            )


def _grades(sample: Sequence[Mapping[str, Any]], found: Mapping[str, str]) -> list[float]:
    """Return the labels that are compared with a threshold, ascending; unlike indices of lists of candidates."""
    cells = [(row.get(found["passage"]), row.get(found["label"])) for row in sample]
    labels = [
        label
        for passage, label in cells
        if not isinstance(passage, list) or (isinstance(label, list) and not _is_among(label, passage))
    ]
    return sorted({number for label in labels for one in _listed(label) if (number := _number(one)) is not None})


def _all_right(file: Path, grades: Sequence[float], column: str) -> SettingError:
    """Return the error of labels of several values that all stand for right answers, such as one to five stars."""
    return SettingError(
        f"{file}: labels in `{column}` are {', '.join(f'{grade:g}' for grade in grades[:5])}, all above "
        f"{_RIGHT_ABOVE}, so that every answer would be right. Write 1 for right answers and 0 for wrong ones; if "
        "all are right, give --columns label= (no name)."
    )


def _is_no_label(column: str, sample: Sequence[Mapping[str, Any]], *, must_be: bool) -> bool:
    """Whether a column that was guessed is of something else: a topic, unless it `must_be` of labels, or another
    ranker's scores.
    """
    values = [row[column] for row in sample if row.get(column) is not None]
    if plain_column(column) == "score":
        given = (one for value in values for one in _listed(value) if one not in (None, "") and one == one)
        return any(_number(one) not in (0, 1) for one in given)
    return None in [_number(value) for value in values if not isinstance(value, list)] and not must_be


def _negatives(names: list[str], found: Mapping[str, str]) -> tuple[str, ...]:
    """Return the column of wrong answers and those that differ from it in a number at the end alone."""
    if "negative" not in found:
        return ()
    stem = found["negative"].rstrip("0123456789")
    numbered = [name for name in names if name.startswith(stem) and name.removeprefix(stem).lstrip("_").isdigit()]
    return tuple(dict.fromkeys((found["negative"], *numbered)))


def _number(label: Any) -> float | None:
    """Return a label that is a number, true or false, yes or no, also as text; None for any other."""
    text = str(label).strip().lower()
    try:
        number = float({"true": 1, "false": 0, "yes": 1, "no": 0}.get(text, text))
    except ValueError:
        return None
    return number if number == number else None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _passages(value: Any) -> list[str]:
    """Return answers that are a text, an object with title and text, messages that end in one, or a list of texts or
    objects; empty ones are left out.
    """
    return [text for text in map(_passage, _items(value)) if text]


def _items(value: Any) -> list[Any]:
    if isinstance(value, dict) and isinstance(value.get("text"), list):
        return value["text"]  # of SQuAD's {"text": [...], "answer_start": [...]}
    if _is_chat(value):
        return value[-1:]
    return _listed(value)


def _is_chat(value: Any) -> TypeGuard[list[dict[str, Any]]]:
    """Whether a value is messages, of which the last one is an answer."""
    return isinstance(value, list) and bool(value) and all(isinstance(x, dict) and _ROLES & x.keys() for x in value)


_ROLES = {"role", "from"}  # of messages, unlike passages
_TEXTS = {"title", "text", "content", "value"}  # of passages and messages


def _is_among(label: Any, texts: list[Any]) -> list[bool]:
    """Return which texts a label is, or one of its texts is; nothing where none is, or where it isn't texts."""
    right = {_passage(one) for one in (label if isinstance(label, list) else [label]) if isinstance(one, str)}
    found = [_passage(text) in right for text in texts]
    return found if any(found) else []


def _passage(value: Any) -> str:
    if isinstance(value, dict):
        text = next((value[name] for name in ("text", "content", "value") if value.get(name)), "")
        value = f"{value.get('title') or ''} {text}"
    return str(value).strip() if isinstance(value, str | int | float) and value == value else ""


def _distinct(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(text for text in map(spaced, texts) if text))


def _detects(path: Path) -> bool:
    found = [guessed_columns(row, COMMON, {}) for row in first_rows(path, 1)]
    return any("query" in one and ("positive" in one or {"passage", "label"} <= one.keys()) for one in found)


ranking = Reader(_open, _detects, options=("speakers", "columns"))
