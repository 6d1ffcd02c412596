"""What a training run learns from: examples, and the batches of each epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from icalib.data.batching import shuffled_batches
from icalib.data.encoding import Encoded, Intents, Layout, TokenPool, TokenStore

Task = Literal["answer_plain", "answer_intent", "intent"]
TASKS: tuple[Task, ...] = ("answer_plain", "answer_intent", "intent")


@dataclass(frozen=True)
class PairLabels:
    """Labels of some candidates of one pool.

    `intent_view` says per candidate whether the pair is also learnt with intents; `learn_intents` whether the
    context's intents are themselves targets.
    """

    row: int
    candidates: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]
    intent_view: npt.NDArray[np.bool_]
    intents: Intents
    learn_intents: bool


def gold_labels(pool: TokenPool, *, with_intents: bool) -> PairLabels:
    """A labelled pool's labels; its gold intents where it has any and they are wanted."""
    candidates = np.arange(len(pool.candidates))
    has_intents = with_intents and any(len(names) for names in pool.intents)
    return PairLabels(
        row=pool.row,
        candidates=candidates,
        labels=(candidates == pool.label).astype(np.int64),
        intent_view=np.full(len(candidates), has_intents),
        intents=pool.intents,
        learn_intents=has_intents,
    )


class Example(NamedTuple):
    """One input to be: a candidate of a pool (answer tasks) or one of its utterances (intent task).

    Ids are assembled only when the example's batch comes up, so that an epoch's plan stays small.
    """

    task: Task
    labels: PairLabels
    place: int
    length: int


def sampled_negatives(pool: PairLabels, num_negatives: int | None, rng: np.random.Generator) -> PairLabels:
    """The pool with all its positives and at most `num_negatives` negatives for each of them."""
    negatives = np.flatnonzero(pool.labels == 0)
    positives = np.flatnonzero(pool.labels == 1)
    if num_negatives is None or len(negatives) <= num_negatives * len(positives):
        return pool
    kept = np.sort(np.concatenate([positives, rng.choice(negatives, num_negatives * len(positives), replace=False)]))
    return replace(pool, candidates=pool.candidates[kept], labels=pool.labels[kept], intent_view=pool.intent_view[kept])


def pool_examples(labels: PairLabels, tokens: TokenPool, layout: Layout) -> Iterator[Example]:
    """The examples of one pool: the three losses of ICAST Eq. 15."""
    context, intents = tokens.context, labels.intents
    for place, number in enumerate(labels.candidates):
        candidate = tokens.candidates[int(number)]
        yield Example("answer_plain", labels, place, layout.pair_length(context, None, candidate))
        if labels.intent_view[place]:
            yield Example("answer_intent", labels, place, layout.pair_length(context, intents, candidate))
    if labels.learn_intents:
        for utterance in range(len(context)):
            yield Example("intent", labels, utterance, layout.question_length(context, intents, utterance))


def encode(example: Example, tokens: TokenPool, layout: Layout) -> Encoded:
    """Input ids of an example."""
    labels = example.labels
    if example.task == "intent":
        return layout.intent_question(tokens.context, labels.intents, example.place)
    context = layout.context_ids(tokens.context, labels.intents if example.task == "answer_intent" else None)
    return layout.pair(context, tokens.candidates[int(labels.candidates[example.place])])


def target(example: Example, num_intents: int) -> npt.NDArray[np.float32]:
    """The label [1], or the utterance's intents as multi-hot [K]."""
    if example.task != "intent":
        return np.array([example.labels.labels[example.place]], np.float32)
    hot = np.zeros(num_intents, np.float32)
    hot[list(example.labels.intents[example.place])] = 1.0
    return hot


def epoch_batches(
    labelled: Sequence[PairLabels],
    store: TokenStore,
    layout: Layout,
    *,
    num_negatives: int | None,
    batch_size: int,
    max_tokens: int,
    rng: np.random.Generator,
    balanced: bool = False,
) -> list[list[Example]]:
    """All batches of an epoch, one task a batch, tasks mixed: a function of the arguments alone.

    Negatives are drawn anew for every epoch; both views of a pair use the same draw.

    Args:
        balanced: right and wrong pairs have the same shares in all batches, right ones first.
    """
    by_task: dict[Task, list[Example]] = {task: [] for task in TASKS}
    for labels in labelled:
        drawn = sampled_negatives(labels, num_negatives, rng)
        for example in pool_examples(drawn, store.pool(drawn.row), layout):
            by_task[example.task].append(example)
    batches: list[list[Example]] = []
    for task, examples in by_task.items():
        lengths = [example.length for example in examples]
        classes = [e.labels.labels[e.place] for e in examples] if balanced and task != "intent" else None
        for batch in shuffled_batches(lengths, batch_size, max_tokens, rng, classes=classes):
            batches.append([examples[int(place)] for place in batch])
    return [batches[int(place)] for place in rng.permutation(len(batches))]
