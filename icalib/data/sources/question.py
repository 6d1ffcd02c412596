"""Ready-made ranking data as pools: what readers of queries with right and wrong answers have in common."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from icalib.core.invalid import abbreviated
from icalib.data.schema import AnsweredContext, Pool, Split
from icalib.data.sources.base import Source, alternating, pool_from, spaced
from icalib.data.sources.conversations import turns
from icalib.data.sources.records import OnReject, Raw, accepted, build
from icalib.data.sources.speakers import Role
from icalib.data.splits import assigned_split, text_key

NO_RIGHT = "queries without a right answer"
LONE_SURROGATE = "found half of a surrogate pair, which is no character"
NO_WRONG = "queries without a wrong answer"
_TEXTS = ("text", "contents", "content", "passage", "body")
_SPLIT_SEED = 0
"""Of the split of a query whose source has none: it depends on the query alone."""


@dataclass(frozen=True)
class Question:
    """A query with its answers.

    Args:
        id: the same for all records of a query.
        pool_id: beginning of its pool's id.
        context: the query as utterances.
        right: its right answers.
        wrong: its wrong ones, the most important first.
        domain: as in `Dialogue`.
        split: None: assigned.
    """

    id: str
    pool_id: str
    context: tuple[dict[str, Any], ...]
    right: list[str]
    wrong: list[str]
    domain: str = ""
    split: Split | None = None


def ranking_source(
    files: Iterable[Path],
    read: Callable[[], Iterator[Raw]],
    parse: Callable[[Raw], Question],
    *,
    mined: bool,
    understood: str = "",
) -> Source:
    """Return a source of queries: one pool for each, with all its answers.

    Where wrong answers are mined, each right one becomes a pool, in which the others don't occur. A query that has
    wrong answers only, two or more, is a pool without a right candidate.

    Args:
        files: everything that is read.
        read: yields the raw records, one a query.
        parse: makes a query of one; raises DataError if it is not valid.
        mined: whether wrong answers are to be mined, because the source has none.
        understood: as in `Source`.
    """
    left_out = Counter[str]()

    def parsed(raw: Raw) -> Question:
        try:
            return parse(raw)
        except UnicodeEncodeError:
            raise raw.error(LONE_SURROGATE) from None

    def pool(raw: Raw) -> Pool | None:
        question = parsed(raw)
        right = _distinct(question.right)
        wrong = [text for text in _distinct(question.wrong) if text not in right]
        if not wrong or (not right and len(wrong) == 1):
            left_out[NO_WRONG if right else NO_RIGHT] += 1
            return None
        split = question.split or assigned_split(question.id, _SPLIT_SEED)
        pool_id = f"{question.pool_id}#0"
        return pool_from(raw, pool_id, split, question.context, right, wrong, question.domain, question.id)

    def answers(raw: Raw) -> AnsweredContext | None:
        question = parsed(raw)
        right = _distinct(question.right)
        if not right:
            left_out[NO_RIGHT] += 1
            return None
        record = {
            "dialog_id": question.id,
            "domain": question.domain,
            "split": question.split,
            "context": question.context,
            "answers": right,
        }
        return build(AnsweredContext, record, raw)

    def all_pools(on_reject: OnReject | None) -> Iterator[Pool]:
        return accepted(read(), pool, on_reject)

    def all_answers(on_reject: OnReject | None) -> Iterator[AnsweredContext]:
        return accepted(read(), answers, on_reject)

    if mined:
        return Source(tuple(files), answers=all_answers, understood=understood, left_out=left_out)
    return Source(tuple(files), pools=all_pools, keeps_all_candidates=False, understood=understood, left_out=left_out)


def query_context(raw: Raw, query: Any, speakers: Mapping[str, Role], field: str) -> tuple[dict[str, Any], ...]:
    """Return a query as utterances: one of the user, or those of a list of texts or messages (also as JSON text).

    Raises:
        DataError: an empty query, or an unknown speaker.
    """
    if isinstance(query, str) and query.lstrip().startswith('[{"'):
        with suppress(ValueError, RecursionError):
            query = json.loads(query)
    if isinstance(query, list) and query and all(isinstance(turn, str) for turn in query):
        return alternating(filter(str.strip, query))
    if isinstance(query, list) and query:
        return tuple(turns(raw, query, speakers, field))
    if not isinstance(query, str | int | float) or not str(query).strip():
        raise raw.error(f"found {abbreviated(query)} as query", field=field)
    return ({"speaker": "user", "text": str(query)},)


def query_id(context: Iterable[Mapping[str, Any]]) -> str:
    """Return an id for a query without one, which follows from its text."""
    return f"query-{text_key(' '.join(str(turn['text']) for turn in context)):016x}"


def passages(value: Any) -> list[str]:
    """Return answers that are a text, an object with title and text, or a list of them; empty ones are left out."""
    values = value if isinstance(value, list) else [value]
    return [text for text in map(passage, values) if text]


def passage(value: Any) -> str:
    """Return the text of an answer, after its title if it has one."""
    if isinstance(value, dict):
        text = next((str(value[name]) for name in _TEXTS if value.get(name)), "")
        value = f"{value.get('title') or ''} {text}"
    return str(value).strip() if isinstance(value, str | int | float) and value == value else ""


def parsed_number(value: Any) -> float | None:
    """Return a number, also of its text; None for anything else."""
    try:
        number = float(str(value))
    except ValueError:
        return None
    return number if number == number else None


def _distinct(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(text for text in map(spaced, texts) if text))
