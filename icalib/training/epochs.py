"""Epochs as arrays, of which the loop has one batch at a time as examples.

A large training has millions of examples; an object for each of them would cost every worker ten times the memory of
their arrays, and minutes before the first update.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, final

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from icalib.data.batching import Batch
from icalib.data.encoding import Layout, Lists, Numbers, TokenStore
from icalib.training.examples import TASKS, Example, LabelledPools, PairLabels

E = TypeVar("E")
Small = npt.NDArray[np.int32]


@final
class Batches(Sequence[list[E]]):
    """The batches of an epoch, in order; one is built when it is asked for.

    Args:
        indices: numbers of the examples in each batch.
        example: returns the example with a number.
    """

    def __init__(self, indices: Sequence[Batch], example: Callable[[int], E]) -> None:
        self._indices, self._example = Lists.joined(indices), example

    @override
    def __len__(self) -> int:
        return len(self._indices.offsets) - 1

    @override
    def __getitem__(self, number: Any) -> Any:
        """Build a batch; an IndexError if there is none with this number."""
        return [self._example(index) for index in self._indices.at(range(len(self))[number]).tolist()]


@final
@dataclass(frozen=True)
class AnswerInputs:
    """The inputs that pools can give, for the three losses of ICAST Eq. 15; they are the same in every epoch.

    Args:
        pools: P pools with N labelled candidates.
        plain_N, intent_N: ids of each pair in either view; 0 for a pair that is not in the intent view.
        questions_3Q: pool, position and ids of the utterances whose intents are learnt; those without intents may not
            have been annotated and have no loss.
    """

    pools: LabelledPools
    plain_N: Small
    intent_N: Small
    questions_3Q: Small

    @classmethod
    def of(cls, pools: Sequence[PairLabels], store: TokenStore, layout: Layout) -> AnswerInputs:
        """Compute the lengths of all inputs, from numbers of ids alone."""
        known = LabelledPools.of(pools)
        contexts, texts = _Contexts(known, store, layout), store.lengths("candidates")
        candidates = known.candidates
        of_N = candidates.rows()
        texts_N = texts.values[texts.offsets[contexts.rows_P[of_N]] + candidates.values]
        with_intents_N = layout.pair_length(contexts.with_intents()[of_N], texts_N)
        return cls(
            pools=known,
            plain_N=layout.pair_length(contexts.plain()[of_N], texts_N).astype(np.int32),
            intent_N=(with_intents_N * known.intent_view_N).astype(np.int32),
            questions_3Q=contexts.questions().astype(np.int32),
        )


class _Contexts:
    """How many ids the contexts of P pools have, and the beginnings of contexts."""

    def __init__(self, pools: LabelledPools, store: TokenStore, layout: Layout) -> None:
        self.rows_P = pools.rows_P
        utterances = store.lengths("context")
        self._layout, self._learnt_P = layout, pools.learn_intents_P
        self._first_P, self._turns_P = (each[self.rows_P] for each in (utterances.offsets, np.diff(utterances.offsets)))
        self._intents = Lists(np.diff(pools.intents.inner.offsets), pools.intents.offsets)
        self._tokens, self._added = utterances.sums(), self._intents.sums()

    def plain(self) -> Numbers:
        """Return the ids of the contexts; [P]."""
        return self._length(np.arange(len(self.rows_P)), self._turns_P, np.zeros_like(self._turns_P))

    def with_intents(self) -> Numbers:
        """Return the ids of the contexts with their intents; [P]."""
        return self._length(np.arange(len(self.rows_P)), self._turns_P, np.diff(self._intents.offsets))

    def questions(self) -> Numbers:
        """Return `AnswerInputs.questions_3Q`."""
        pool, position = self._intents.rows(), self._intents.positions()
        lengths = self._layout.question_length(self._length(pool, position + 1, position))
        return np.stack([pool, position, lengths])[:, self._learnt_P[pool] & (self._intents.values > 0)]

    def _length(self, pool: Numbers, turns: Numbers, annotated: Numbers) -> Numbers:
        """Return the ids of so many first turns of pools' contexts, and of the intents of so many of them."""
        tokens, intents = self._first_P[pool], self._intents.offsets[pool]
        spoken = self._tokens[tokens + turns] - self._tokens[tokens]
        return self._layout.context_length(spoken + self._added[intents + annotated] - self._added[intents], turns)


@final
@dataclass(frozen=True)
class Examples:
    """References to M inputs.

    Args:
        inputs: what their pools can give.
        drawn: positions of each pool's drawn candidates.
        columns_4M: index into TASKS, index of the pool, position among its drawn candidates or its utterances, ids.
    """

    inputs: AnswerInputs
    drawn: Lists
    columns_4M: Small

    @classmethod
    def of(cls, inputs: AnswerInputs, drawn: Lists) -> Examples:
        """Return the examples of drawn candidates, and of all questions; by task, pool and position."""
        pool, position = (one.astype(np.int32) for one in (drawn.rows(), drawn.positions()))
        number = inputs.pools.candidates.offsets[pool] + drawn.values
        columns: list[Small] = []
        for length in (inputs.plain_N[number], inputs.intent_N[number]):
            exists = np.flatnonzero(length)
            columns.append(np.stack([pool[exists], position[exists], length[exists]]))
        columns.append(inputs.questions_3Q)
        task = np.repeat(np.arange(len(TASKS), dtype=np.int32), [one.shape[1] for one in columns])
        return cls(inputs, drawn, np.concatenate([task[None], np.concatenate(columns, 1)]))

    def __len__(self) -> int:
        return self.columns_4M.shape[1]

    @property
    def task_M(self) -> Small:
        """Each example's index into TASKS."""
        return self.columns_4M[0]

    @property
    def rows_M(self) -> Numbers:
        """The row of each example's pool in the token store."""
        return self.inputs.pools.rows_P[self.columns_4M[1]]

    @property
    def length_M(self) -> Small:
        """Each example's number of ids."""
        return self.columns_4M[3]

    def labels(self, pairs: Batch) -> npt.NDArray[Any]:
        """Return the labels of some pairs."""
        _, pool, position, _ = self.columns_4M[:, pairs]
        of_pool = self.drawn.values[self.drawn.offsets[pool] + position]
        return self.inputs.pools.labels_N[self.inputs.pools.candidates.offsets[pool] + of_pool]

    def take(self, indices: Batch) -> Examples:
        """Return some examples, in the order of `indices`."""
        return Examples(self.inputs, self.drawn, self.columns_4M[:, indices])

    def example(self, number: int) -> Example:
        """Return one example."""
        task, pool, position, length = self.columns_4M[:, number].tolist()
        labels, drawn = self.inputs.pools[pool], self.drawn.at(pool)
        if len(drawn) < len(labels.candidates):
            labels = labels.at(drawn)
        return Example(TASKS[task], labels, position, length)
