"""Training examples: labels of pools, and references to inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from icalib.data.batching import shuffled_batches
from icalib.data.encoding import Encoded, Intents, Layout, Lists, Numbers, TokenPool, TokenStore
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
    candidates: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64] | npt.NDArray[np.float64]
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


def gold_labels(store: TokenStore, rows: Sequence[int] | Numbers, *, with_intents: bool) -> list[PairLabels]:
    """Return the gold labels of labelled pools, all 0 without a right candidate; `with_intents` their intents, too.

    No token is read, and pools share what is the same in them, as a large training has a hundred thousand pools.
    """
    rows_P = np.asarray(rows, np.int64)
    right = store.is_right(rows_P)
    labels = Lists(right.values.astype(np.int64), right.offsets)
    intents = store.intents(rows_P) if with_intents else [()] * len(rows_P)
    every = {size: np.arange(size) for size in np.unique(np.diff(labels.offsets)).tolist()}
    views = {(size, has_intents): np.full(size, has_intents) for size in every for has_intents in (False, True)}
    found: list[PairLabels] = []
    for number, (row, names) in enumerate(zip(rows_P.tolist(), intents, strict=True)):
        labels_C, has_intents = labels.at(number), any(map(len, names))
        size = len(labels_C)
        found.append(PairLabels(row, every[size], labels_C, views[size, has_intents], names, has_intents))
    return found


class Example(NamedTuple):
    """Reference to one input: a candidate of a pool (answer tasks) or an utterance of its context (intent task).

    `position` is an index into the pool's labelled candidates or its context; token ids are assembled when they are
    used.
    """

    task: Task
    labels: PairLabels
    position: int
    length: int


def sampled_positions(pool: PairLabels, num_negatives: int | None, rng: np.random.Generator) -> Positions:
    """Return the positions of all positives of a pool and of at most `num_negatives` negatives for each, drawn;
    without positives, of as many candidates as with one.
    """
    if num_negatives is None:
        return np.arange(len(pool.labels))
    negatives, positives = (np.flatnonzero(pool.labels == label) for label in (0, 1))
    num_kept = num_negatives * len(positives) if len(positives) else num_negatives + 1
    if len(negatives) <= num_kept:
        return np.arange(len(pool.labels))
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
