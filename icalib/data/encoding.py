"""Token ids: a corpus is tokenised once, and every view of a pair is assembled from ids.

Layout (ICAST with the conventional segment ids):

    plain   [CLS] u₁ u₂ … u_t [SEP] candidate [SEP]            segments 0 … 0 1 … 1
    intent  [CLS] u₁ e₁ u₂ e₂ … u_t e_t [SEP] candidate [SEP]   e_j: the tokens of u_j's intents
    and, to predict the intents of u_j:
            [CLS] u₁ e₁ … u_{j−1} e_{j−1} u_j [SEP]             read at the last [SEP]

With turn separators there is a [SEP] between utterances, too: [CLS] u₁ [SEP] u₂ [SEP] … u_t [SEP] candidate [SEP], so
that an encoder can separate them (IART, GRN, SAM, BERT_FP).

A pool as one input (JM) has a marker token before each candidate, from whose state the candidate is read:

    [CLS] context [SEP] ◆ r₁ [SEP] ◆ r₂ [SEP] … ◆ r_C [SEP]      segments 0 … 0 1 … 1

The context keeps its end, the candidate its start.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from icalib.core.component import Settings
from icalib.core.errors import SettingError
from icalib.core.files import atomic_write
from icalib.core.parquet import map_arrow
from icalib.data.schema import Pool, candidate_labels
from icalib.data.splits import text_key

Ids = npt.NDArray[np.int32]
Keys = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]
N = TypeVar("N", int, Numbers)
_ROWS_AT_ONCE = 16384  # of a pass over the ids, which Arrow copies: about ten MiB
Intents = Sequence[Sequence[int]]
"""Intent numbers (indices into the label list) of each utterance of a context."""

TOKEN_SCHEMA = pa.schema(
    [
        ("pool_id", pa.string()),
        ("dialog_id", pa.string()),
        ("context", pa.list_(pa.list_(pa.int32()))),
        ("intents", pa.list_(pa.list_(pa.int32()))),
        ("candidates", pa.list_(pa.list_(pa.int32()))),
        ("context_keys", pa.list_(pa.uint64())),  # of whole texts: ids are cut at the budget
        ("candidate_keys", pa.list_(pa.uint64())),
        ("label", pa.int32()),
        ("label_order", pa.int32()),
        ("also_right", pa.list_(pa.int32())),
    ]
)


class Budget(Settings):
    """Maximum number of tokens of a pair that the encoder reads."""

    max_context_tokens: int = Field(default=400, ge=1)
    """Tokens of the context, intents counted; its end is kept."""
    max_candidate_tokens: int = Field(default=100, ge=1)
    """Tokens of a candidate; its start is kept."""


Tokenize = Callable[[list[str]], list[list[int]]]
"""Function from texts to the token ids of each, without special tokens."""


def ids_by_text(texts: Iterable[str], tokenize: Tokenize) -> dict[str, list[int]]:
    """Return the ids of each distinct text: candidates recur as negatives, utterances in the next context."""
    distinct = list(dict.fromkeys(texts))
    return dict(zip(distinct, tokenize(distinct), strict=True)) if distinct else {}


def write_tokens(
    path: Path, pools: Sequence[Sequence[Pool]], tokenize: Tokenize, intents: Sequence[str], budget: Budget
) -> None:
    """Tokenise batches of pools into an Arrow file that `TokenStore` maps into memory, each distinct text once."""
    numbers = {name: number for number, name in enumerate(intents)}
    ids = ids_by_text((text for batch in pools for pool in batch for text in _texts(pool)), tokenize)
    with atomic_write(path) as temporary, pa.ipc.new_file(str(temporary), TOKEN_SCHEMA) as writer:
        for batch in pools:
            writer.write_batch(_token_batch(batch, ids, numbers, budget))


def _texts(pool: Pool) -> list[str]:
    return [*(utterance.text for utterance in pool.context), *pool.candidates]


def _token_batch(
    pools: Sequence[Pool], ids: Mapping[str, list[int]], numbers: Mapping[str, int], budget: Budget
) -> pa.RecordBatch:
    keys = {text: text_key(text) for pool in pools for text in _texts(pool)}
    return pa.RecordBatch.from_pylist(
        [
            {
                "pool_id": pool.pool_id,
                "dialog_id": pool.dialog_id,
                "context": [ids[u.text][-budget.max_context_tokens :] for u in pool.context],
                "intents": [[numbers[name] for name in u.intents if name in numbers] for u in pool.context],
                "candidates": [ids[c][: budget.max_candidate_tokens] for c in pool.candidates],
                "context_keys": [keys[u.text] for u in pool.context],
                "candidate_keys": [keys[c] for c in pool.candidates],
                "label": pool.label,
                "label_order": pool.label_order,
                "also_right": pool.also_right,
            }
            for pool in pools
        ],
        schema=TOKEN_SCHEMA,
    )


@dataclass(frozen=True)
class TokenPool:
    """One pool as ids."""

    row: int
    pool_id: str
    dialog_id: str
    context: list[Ids]
    intents: Intents
    candidates: list[Ids]
    label: int
    also_right: tuple[int, ...] = ()

    def is_right(self) -> npt.NDArray[np.bool_]:
        """Return which candidates are right, [C]; none where that is unknown."""
        return candidate_labels(self.label, self.also_right, len(self.candidates)) == 1


class TokenStore:
    """A split's pools as ids, mapped into memory: a row is read when it is needed.

    `path` is a file, or a folder of files whose rows follow each other in the order of their names. A DamagedFileError
    says that one is missing or can't be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._table = pa.concat_tables([map_arrow(file) for file in sorted(path.glob("*.arrow")) or [path]])

    def __len__(self) -> int:
        return self._table.num_rows

    @cached_property
    def _context(self) -> IdLists:
        return IdLists(self._table["context"])

    @cached_property
    def _candidates(self) -> IdLists:
        return IdLists(self._table["candidates"])

    def pool(self, row: int) -> TokenPool:
        """Return the pool in a row."""
        return TokenPool(
            row=row,
            pool_id=self._table["pool_id"][row].as_py(),
            dialog_id=self._table["dialog_id"][row].as_py(),
            context=self._context.at(row),
            intents=self._table["intents"][row].as_py(),
            candidates=self._candidates.at(row),
            label=self._table["label"][row].as_py(),
            also_right=tuple(self._table["also_right"][row].as_py()),
        )

    def pools(self, rows: Iterable[int]) -> Iterator[TokenPool]:
        """Yield the pools in some rows."""
        return (self.pool(int(row)) for row in rows)

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return a flat column, e.g. label or label_order."""
        return self._table[name].to_numpy()

    def rows_of(self, pool_ids: Iterable[pa.Array]) -> dict[str, int]:
        """Return the rows of the pools with some ids."""
        wanted = pa.chunked_array(list(pool_ids), pa.string()).unique()
        place = pc.call_function("index_in", [self._table["pool_id"]], pc.SetLookupOptions(value_set=wanted))
        rows = np.flatnonzero(place.is_valid().to_numpy())
        return dict(zip(self._table["pool_id"].take(rows).to_pylist(), rows.tolist(), strict=True))

    def intents(self, rows: Numbers) -> ListsOfLists:
        """Return the intents of the utterances of some pools."""
        return ListsOfLists.of(self._table.select(["intents"]).take(rows)["intents"])

    def is_right(self, rows: Numbers) -> Lists:
        """Return which candidates of some pools are right; none where that is unknown."""
        sizes = pc.call_function("list_value_length", [self._table["candidates"]]).to_numpy()[rows]
        also = Lists.of(self._table.select(["also_right"]).take(rows)["also_right"])
        offsets = _offsets(sizes)
        right = np.zeros(offsets[-1], np.bool_)
        first = self.column("label")[rows]
        right[(offsets[:-1] + first)[first >= 0]] = True
        right[offsets[also.rows()] + also.values] = True
        return Lists(right, offsets)

    def keys(self, name: Literal["context_keys", "candidate_keys"]) -> Lists:
        """Return the `text_key`s of all pools' contexts or candidates: of whole texts, while ids are cut."""
        return Lists.of(self._table[name])

    def lengths(self, name: Literal["context", "candidates"]) -> Lists:
        """Return the number of ids of every utterance or candidate of each pool, without reading the ids."""
        column = self._table[name]
        inner = pc.call_function("list_flatten", [column])
        sizes, values = (pc.call_function("list_value_length", [one]).to_numpy() for one in (column, inner))
        return Lists(values, _offsets(sizes))

    def token_ids(self, rows: Sequence[int] | Numbers) -> Numbers:
        """Return the distinct ids in contexts and candidates of some pools."""
        found = np.zeros(0, np.int64)
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            table = self._table.select(["context", "candidates"]).take(rows[start : start + _ROWS_AT_ONCE])
            found = np.union1d(found, distinct_ids(table))
        return found

    def utterances(self, row: int, start: int, stop: int) -> list[Ids]:
        """Return the token ids of some utterances of a pool's context."""
        return self._context.at(row, start, stop)


def distinct_ids(lists: pa.Table) -> Numbers:
    """Return the distinct ids in columns of lists of ids."""
    columns = (pc.call_function("list_flatten", [one], pc.ListFlattenOptions(recursive=True)) for one in lists.columns)
    return np.unique(np.concatenate([pc.call_function("unique", [ids]).to_numpy() for ids in columns])).astype(np.int64)


def _offsets(sizes: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
    return np.append(0, np.cumsum(sizes, dtype=np.int64))


class Lists(NamedTuple):
    """A column of lists: list i is `values[offsets[i] : offsets[i + 1]]`."""

    values: npt.NDArray[Any]
    offsets: npt.NDArray[np.int64]

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> Lists:
        """Return a column of a table, all its chunks as one."""
        lists = column.combine_chunks()
        offsets = lists.offsets.to_numpy().astype(np.int64)
        return cls(lists.flatten().to_numpy(), offsets - offsets[0])

    @classmethod
    def of_sizes(cls, sizes: npt.NDArray[np.int64]) -> Lists:
        """Return lists of the numbers from 0, of some sizes."""
        offsets = _offsets(sizes)
        return cls((np.arange(offsets[-1]) - np.repeat(offsets[:-1], sizes)).astype(np.int32), offsets)

    @classmethod
    def joined(cls, lists: Sequence[npt.NDArray[Any]]) -> Lists:
        """Return some lists of numbers."""
        values = np.concatenate(lists) if len(lists) else np.zeros(0, np.int64)
        return cls(values, np.cumsum([0, *map(len, lists)]))

    @classmethod
    def concatenated(cls, columns: Sequence[Lists]) -> Lists:
        """Return all lists of some columns."""
        sizes = np.concatenate([np.diff(one.offsets) for one in columns])
        return cls(np.concatenate([one.values for one in columns]), _offsets(sizes))

    def at(self, number: int) -> npt.NDArray[Any]:
        """Return one list."""
        return self.values[self.offsets[number] : self.offsets[number + 1]]

    def rows(self) -> npt.NDArray[np.int64]:
        """Return the list that each value is in."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def positions(self) -> npt.NDArray[Any]:
        """Return each value's place in its list."""
        return Lists.of_sizes(np.diff(self.offsets)).values

    def sums(self) -> npt.NDArray[np.int64]:
        """Return the sum of the values before each one, of all lists together, and the whole sum at the end."""
        return np.append(0, np.cumsum(self.values))

    def totals(self) -> npt.NDArray[np.int64]:
        """Return the sum of each list."""
        return np.diff(self.sums()[self.offsets])


class ListsOfLists(NamedTuple):
    """A column of lists of lists: list i is those of `inner` from `offsets[i]` up to `offsets[i + 1]`."""

    offsets: npt.NDArray[np.int64]
    inner: Lists

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> ListsOfLists:
        """Return a column of a table; a list that is null has nothing in it."""
        flat = pc.call_function("list_flatten", [column])
        sizes = pc.call_function("list_value_length", [column]).fill_null(0).to_numpy()
        return cls(_offsets(sizes), Lists.of(flat))

    @classmethod
    def empty(cls, size: int) -> ListsOfLists:
        """Return so many lists with nothing in them."""
        return cls(np.zeros(size + 1, np.int64), Lists(np.zeros(0, np.int64), np.zeros(1, np.int64)))

    @classmethod
    def concatenated(cls, columns: Sequence[ListsOfLists]) -> ListsOfLists:
        """Return all lists of some columns."""
        sizes = np.concatenate([np.diff(one.offsets) for one in columns])
        return cls(_offsets(sizes), Lists.concatenated([one.inner for one in columns]))

    def at(self, number: int) -> list[list[int]]:
        """Return one list of lists."""
        start, stop = self.offsets[number : number + 2].tolist()
        return [self.inner.at(each).tolist() for each in range(start, stop)]

    def num_values(self) -> npt.NDArray[np.int64]:
        """Return the number of values in each list of lists."""
        return np.diff(self.inner.offsets[self.offsets])


class IdLists:
    """A column of lists of ids, as views of its memory; slicing it by Arrow takes four times as long."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._chunks = [
            (chunk.offsets.to_numpy(), chunk.values.offsets.to_numpy(), chunk.values.values.to_numpy())
            for chunk in column.chunks
        ]
        self._first_rows = np.cumsum([0, *map(len, column.chunks)]).tolist()

    def at(self, row: int, start: int = 0, stop: int | None = None) -> list[Ids]:
        """Return some of the lists in a row, without converting ids to Python integers."""
        number = bisect_right(self._first_rows, row) - 1
        rows, lists, ids = self._chunks[number]
        place = row - self._first_rows[number]
        bounds = lists[rows[place] : rows[place + 1] + 1].tolist()
        return [ids[begin:end] for begin, end in list(pairwise(bounds))[start:stop]]


@dataclass(frozen=True)
class Layout:
    """Writes token ids into the encoder's input form.

    `num_separators` are those between context and candidate (1 for BERT, 2 for RoBERTa), `first_intent` is the id of
    the token of intent number 0, `max_length` the encoder's positions; separators of turns count as tokens of the
    context. A SettingError says that the candidate's budget leaves no position for the context.
    """

    cls: int
    separator: int
    padding: int
    num_separators: int
    first_intent: int
    max_length: int
    budget: Budget
    turn_separators: bool = False

    def __post_init__(self) -> None:
        if self._context_room < 1:
            raise SettingError(
                f"encoder.budget.max_candidate_tokens is {self.budget.max_candidate_tokens}, but the backbone has only "
                f"{self.max_length} positions for context, candidate and separators. Give a smaller number."
            )

    @property
    def _context_room(self) -> int:
        return self.max_length - self.budget.max_candidate_tokens - self.num_separators - 2

    @property
    def _max_context(self) -> int:
        return min(self.budget.max_context_tokens, self._context_room)

    @property
    def limits(self) -> Budget:
        """Maximum numbers of tokens that a pair has: those of the budget, or fewer where positions are short."""
        return Budget(max_context_tokens=self._max_context, max_candidate_tokens=self.budget.max_candidate_tokens)

    def context_ids(self, context: Sequence[Ids], intents: Intents | None) -> Ids:
        """Return u₁ e₁ … u_t e_t; without intents where `intents` is None or shorter than the context."""
        parts: list[Any] = []
        for number, utterance in enumerate(context):
            if self.turn_separators and number:
                parts.append([self.separator])
            parts.append(utterance)
            if intents is not None and number < len(intents) and len(intents[number]):
                parts.append(np.asarray(intents[number], np.int32) + self.first_intent)
        return np.concatenate(parts, dtype=np.int32)[-self._max_context :]

    def context_length(self, tokens: N, turns: N) -> N:
        """Return the number of ids in `context_ids` of a context with so many tokens, intents counted, and turns.

        This one, `pair_length` and `question_length` take numbers, or arrays of them.
        """
        length: Any = np.minimum(tokens + (turns - 1 if self.turn_separators else 0), self._max_context)
        return length

    def context_lengths(self, utterances: Lists) -> Numbers:
        """Return the number of ids in `context_ids` of contexts without intents, from those of utterances; [B]."""
        before = utterances.sums()[utterances.offsets]
        return self.context_length(np.diff(before), np.diff(utterances.offsets))

    def pair_length(self, context: N, candidate: N) -> N:
        """Return the number of ids in `pair`, of which so many are a context's and a candidate's."""
        return context + candidate + self.num_separators + 2

    def question_length(self, context: N) -> N:
        """Return the number of ids in `intent_question`, of which so many are the context's."""
        return context + 2

    def token_ids(self, texts: Numbers) -> Numbers:
        """Return the distinct ids in inputs of texts with such ids, but those of intents."""
        return np.union1d(texts, [self.cls, self.separator])

    def pair(self, context_ids: Ids, candidate: Ids) -> tuple[Ids, int]:
        """Return the input ids of a pair, and the index at which the candidate's segment starts."""
        start = 1 + len(context_ids) + self.num_separators
        ids = np.full(start + len(candidate) + 1, self.separator, np.int32)
        ids[0] = self.cls
        ids[1 : 1 + len(context_ids)] = context_ids
        ids[start:-1] = candidate
        return ids, start

    def single(self, ids: Ids) -> Ids:
        """Return the input ids of one text, of which the start is kept where the encoder's positions are too few.

        An utterance may have all tokens of a context, which can be more than there are positions. Training on
        utterances and predicting from them read the same, as neither cuts them elsewhere.
        """
        return np.concatenate([[self.cls], ids[: self.max_length - 2], [self.separator]], dtype=np.int32)

    def inputs(self, context: Sequence[Ids], intents: Intents | None, candidates: Sequence[Ids]) -> list[Encoded]:
        """Return the encoder's inputs for a pool: one for each candidate, in their order."""
        context_ids = self.context_ids(context, intents)
        return [self.pair(context_ids, candidate) for candidate in candidates]

    def input_lengths(self, context: int, candidates: Numbers) -> Numbers:
        """Return the number of ids in each of the `inputs` of a pool whose context and candidates have so many ids."""
        return self.pair_length(np.array(context), candidates)

    def intent_question(self, context: Sequence[Ids], intents: Intents, utterance: int) -> tuple[Ids, int]:
        """Return the input ids for predicting the intents of one utterance, given those before it."""
        ids = self.single(self.context_ids(context[: utterance + 1], intents[:utterance]))
        return ids, len(ids)


@final
class PoolLayout(Layout):
    """Writes a pool as one input without intents, whose first id marks each candidate.

    In a pool that exceeds the encoder's positions each text keeps at most as many tokens as let all fit (our reading).
    """

    @property
    def marker(self) -> int:
        """Id of the token before each candidate."""
        return self.first_intent

    def inputs(self, context: Sequence[Ids], intents: Intents | None, candidates: Sequence[Ids]) -> list[Encoded]:
        """Return the one input of a pool; one whose candidates don't fit into the encoder's positions is an error."""
        context_ids = super().context_ids(context, None)
        kept = self._kept([len(context_ids), *map(len, candidates)])
        before = [[self.cls], context_ids[-kept:], [self.separator] * self.num_separators]
        marked = [part for ids in candidates for part in ([self.marker], ids[:kept], [self.separator])]
        return [(np.concatenate([*before, *marked], dtype=np.int32), sum(map(len, before)))]

    def input_lengths(self, context: int, candidates: Numbers) -> Numbers:
        """Return the number of ids in the input."""
        lengths = [context, *candidates.tolist()]
        kept = self._kept(lengths)
        return np.array([self._num_special(len(candidates)) + sum(min(length, kept) for length in lengths)])

    def _num_special(self, num_candidates: int) -> int:
        return 1 + self.num_separators + 2 * num_candidates

    def _kept(self, lengths: Sequence[int]) -> int:
        """Return the maximum number of tokens that each text, the context first, keeps."""
        num_candidates = len(lengths) - 1
        max_candidates = (self.max_length - self.num_separators - 2) // 3  # then each text has one token
        if num_candidates > max_candidates:
            raise SettingError(
                f"a pool has {num_candidates} candidates, and the backbone's {self.max_length} positions hold "
                f"{max_candidates} with their markers, a context and separators. Prepare smaller pools, or choose a "
                "method that reads each candidate by itself (bert, grn)."
            )
        room = self.max_length - self._num_special(num_candidates)
        kept = max(lengths)
        while sum(min(length, kept) for length in lengths) > room:
            kept -= 1
        return kept


Encoded = tuple[Ids, int]
"""Input ids and the index at which segment 1 starts (their number, where there is none)."""


def pad(encoded: Sequence[Encoded], padding: int) -> tuple[Any, Any, Any]:
    """Return ids, segments and lengths of a batch as arrays [B, L], [B, L], [B]; L is the longest of this batch."""
    lengths_B, starts_B = np.array([(len(ids), start) for ids, start in encoded]).T
    places_L = np.arange(lengths_B.max())
    is_token_BL = places_L < lengths_B[:, None]
    ids_BL = np.full(is_token_BL.shape, padding, np.int64)
    ids_BL[is_token_BL] = np.concatenate([ids for ids, _ in encoded])
    segments_BL = (is_token_BL & (places_L >= starts_B[:, None])).astype(np.int64)
    return ids_BL, segments_BL, lengths_B
