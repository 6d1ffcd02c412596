"""Training examples: labels of pools, and references to inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import override

from icalib.data.batching import shuffled_batches
from icalib.data.encoding import Encoded, Intents, Layout, Lists, ListsOfLists, Numbers, TokenPool, TokenStore
from icalib.data.folds import Fold
from icalib.data.selection import Rows, Selection
from icalib.training.settings import TrainingSettings

Task = Literal["answer_plain", "answer_intent", "intent"]
TASKS: tuple[Task, ...] = ("answer_plain", "answer_intent", "intent")
Positions = npt.NDArray[np.int64]
"""Indices into a pool's labelled candidates."""


@dataclass(frozen=True, slots=True)
class PairLabels:
    """Labels (1, 0, or a teacher's probabilities) of some candidates of one pool."""

    row: int
    candidates: npt.NDArray[np.integer[Any]]
    labels: npt.NDArray[np.integer[Any]] | npt.NDArray[np.float64]
    intent_view: npt.NDArray[np.bool_]
    intents: Intents = ()
    learn_intents: bool = False
    precision: float = 1.0  # probability that the labels are right

    def at(self, positions: Positions) -> PairLabels:
        """Return the labels of the candidates at some positions, in their order."""
        candidates, labels, view = self.candidates[positions], self.labels[positions], self.intent_view[positions]
        return replace(self, candidates=candidates, labels=labels, intent_view=view)


def training_rows(store: TokenStore, selection: Selection, left_out: Fold | None = None) -> Rows:
    """Return the rows of the labelled training pools, without a fold of them."""
    rows = selection.rows("train", "labelled", store.column("label_order"))
    return rows if left_out is None else left_out.others(store, rows)


@final
@dataclass(frozen=True, eq=False)
class LabelledPools(Sequence[PairLabels]):
    """Labels of P pools as arrays; those of one pool are built when they are asked for.

    A training worker holds the labels of all its pools: as an object each they would take ten times the memory.

    Args:
        rows_P: each pool's row in the token store.
        candidates: numbers of each pool's labelled candidates.
        labels_N: labels of the N candidates of all pools.
        intent_view_N: which of them are in the intent view, too.
        intents: those of each pool's utterances.
        learn_intents_P: whether these are targets.
        precision_P: the probability that the labels are right.
    """

    rows_P: Numbers
    candidates: Lists
    labels_N: npt.NDArray[Any]
    intent_view_N: npt.NDArray[np.bool_]
    intents: ListsOfLists
    learn_intents_P: npt.NDArray[np.bool_]
    precision_P: npt.NDArray[np.float64]

    @classmethod
    def without_intents(
        cls,
        rows_P: Numbers,
        candidates: Lists,
        labels_N: npt.NDArray[Any],
        precision_P: npt.NDArray[np.float64] | None = None,
    ) -> LabelledPools:
        """Return labels in the plain view alone; without a precision they are taken as right."""
        size, nothing = len(rows_P), np.zeros(len(rows_P), np.bool_)
        precision = np.ones(size) if precision_P is None else precision_P
        view = np.zeros(len(labels_N), np.bool_)
        return cls(rows_P, candidates, labels_N, view, ListsOfLists.empty(size), nothing, precision)

    @classmethod
    def of(cls, pools: Sequence[PairLabels]) -> LabelledPools:
        """Return some pools' labels as arrays."""
        if isinstance(pools, LabelledPools):
            return pools
        names = pa.array([pool.intents for pool in pools], pa.list_(pa.list_(pa.int64())))
        return cls(
            np.array([pool.row for pool in pools], np.int64),
            Lists.joined([pool.candidates for pool in pools]),
            Lists.joined([pool.labels for pool in pools]).values,
            np.concatenate([np.zeros(0, np.bool_), *(pool.intent_view for pool in pools)]),
            ListsOfLists.of(pa.chunked_array([names])),
            np.array([pool.learn_intents for pool in pools], np.bool_),
            np.array([pool.precision for pool in pools], np.float64),
        )

    @classmethod
    def joined(cls, parts: Sequence[LabelledPools]) -> LabelledPools:
        """Return the pools of at least one part, in order."""
        return cls(
            np.concatenate([one.rows_P for one in parts]),
            Lists.concatenated([one.candidates for one in parts]),
            np.concatenate([one.labels_N for one in parts]),
            np.concatenate([one.intent_view_N for one in parts]),
            ListsOfLists.concatenated([one.intents for one in parts]),
            np.concatenate([one.learn_intents_P for one in parts]),
            np.concatenate([one.precision_P for one in parts]),
        )

    @property
    def labels(self) -> Lists:
        """The labels of each pool."""
        return Lists(self.labels_N, self.candidates.offsets)

    def num_labelled(self, label: int) -> Numbers:
        """Return the number of each pool's candidates with a label, [P]."""
        return Lists(self.labels_N == label, self.candidates.offsets).totals()

    @override
    def __len__(self) -> int:
        return len(self.rows_P)

    @override
    def __getitem__(self, number: Any) -> Any:
        """Build a pool's labels; an IndexError if there is none with this number."""
        pool = range(len(self))[number]
        pairs = slice(*self.candidates.offsets[pool : pool + 2].tolist())
        return PairLabels(
            int(self.rows_P[pool]),
            self.candidates.values[pairs],
            self.labels_N[pairs],
            self.intent_view_N[pairs],
            self.intents.at(pool),
            bool(self.learn_intents_P[pool]),
            float(self.precision_P[pool]),
        )


def gold_labels(store: TokenStore, rows: Sequence[int] | Numbers, *, with_intents: bool) -> LabelledPools:
    """Return the gold labels of labelled pools, all 0 without a right candidate; `with_intents` their intents, too."""
    rows_P = np.asarray(rows, np.int64)
    right = store.is_right(rows_P)
    candidates, labels_N = Lists(right.positions(), right.offsets), right.values.astype(np.int8)
    found = LabelledPools.without_intents(rows_P, candidates, labels_N)
    if not with_intents:
        return found
    intents = store.intents(rows_P)
    has_intents_P = intents.num_values() > 0
    view = np.repeat(has_intents_P, np.diff(right.offsets))
    return replace(found, intent_view_N=view, intents=intents, learn_intents_P=has_intents_P)


class Example(NamedTuple):
    """Reference to one input: a candidate of a pool (answer tasks) or an utterance of its context (intent task).

    `position` is an index into the pool's labelled candidates or its context; token ids are assembled when they are
    used.
    """

    task: Task
    labels: PairLabels
    position: int
    length: int


def sampled(labels: Lists, num_negatives: int | None, rng: np.random.Generator) -> Lists:
    """Return the `sampled_positions` of every pool."""
    if num_negatives is None:
        return Lists(labels.positions(), labels.offsets)
    return Lists.joined(
        [sampled_positions(one, num_negatives, rng) for one in map(labels.at, range(len(labels.offsets) - 1))]
    )


def sampled_positions(labels: npt.NDArray[Any], num_negatives: int | None, rng: np.random.Generator) -> Positions:
    """Return the positions of all positives among a pool's labels and of at most `num_negatives` negatives for each,
    drawn; without positives, of as many candidates as with one.
    """
    if num_negatives is None:
        return np.arange(len(labels))
    negatives, positives = (np.flatnonzero(labels == label) for label in (0, 1))
    num_kept = num_negatives * len(positives) if len(positives) else num_negatives + 1
    if len(negatives) <= num_kept:
        return np.arange(len(labels))
    return np.sort(np.concatenate([positives, rng.choice(negatives, num_kept, replace=False)]))


def encode(example: Example, tokens: TokenPool, layout: Layout) -> Encoded:
    """Return the input ids of an example."""
    labels = example.labels
    if example.task == "intent":
        return layout.intent_question(tokens.context, labels.intents, example.position)
    context = layout.context_ids(tokens.context, labels.intents if example.task == "answer_intent" else None)
    return layout.pair(context, tokens.candidates[int(labels.candidates[example.position])])


def target(example: Example, num_intents: int) -> npt.NDArray[np.float32]:
    """Return the label [1], or the utterance's intents as a multi-hot vector [K]."""
    if example.task != "intent":
        return np.array([example.labels.labels[example.position]], np.float32)
    hot = np.zeros(num_intents, np.float32)
    hot[list(example.labels.intents[example.position])] = 1.0
    return hot


class _Sized(Protocol):
    """An example with an approximate number of tokens."""

    @property
    def length(self) -> int: ...


E = TypeVar("E", bound=_Sized)


def batched(examples: Sequence[E], training: TrainingSettings, rng: np.random.Generator) -> list[list[E]]:
    """Group examples of similar length into batches, in random order."""
    lengths = [example.length for example in examples]
    batches = shuffled_batches(lengths, training.batch_size, training.max_tokens_per_batch, rng)
    return [[examples[int(index)] for index in batch] for batch in batches]
