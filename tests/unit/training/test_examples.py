from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from helpers.tiny_models import tiny_ranker

from icalib.data.encoding import Budget, Layout, Lists, ListsOfLists, TokenPool, TokenStore
from icalib.losses.binary import BinaryCrossEntropy
from icalib.losses.head_objective import HeadObjective
from icalib.training.epochs import AnswerInputs, Examples
from icalib.training.examples import Example, LabelledPools, PairLabels, encode, gold_labels, sampled_positions, target
from icalib.training.pairs import AnswerCurriculum
from icalib.training.settings import TrainingSettings


@pytest.fixture(scope="module")
def layout(tiny_bert: Path, intents: tuple[str, ...]) -> Layout:
    return tiny_ranker(tiny_bert, intents=intents).layout


@pytest.fixture(scope="module")
def pool(store: TokenStore) -> TokenPool:
    return next(pool for pool in store.pools(range(len(store))) if len(pool.context) == 3)


def examples_of(pools: list[PairLabels], store: TokenStore, layout: Layout) -> list[Example]:
    """All examples of some pools, by task, pool and position."""
    everything = Lists.joined([np.arange(len(pool.candidates)) for pool in pools])
    found = Examples.of(AnswerInputs.of(pools, store, layout), everything)
    return [found.example(number) for number in range(len(found))]


@pytest.mark.parametrize(
    ("with_intents", "names", "expected"),
    [
        (True, [[2], [1], [0, 1]], {"answer_plain": 4, "answer_intent": 4, "intent": 3}),
        (True, [[2], [], [0, 1]], {"answer_plain": 4, "answer_intent": 4, "intent": 2}),
        (True, [[], [], []], {"answer_plain": 4}),
        (False, [[2], [1], [0, 1]], {"answer_plain": 4}),
    ],
)
def test_a_gold_pool_is_learnt_in_both_views_with_the_intents_that_it_has(
    pool: TokenPool,
    store: TokenStore,
    layout: Layout,
    with_intents: bool,
    names: list[list[int]],
    expected: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = replace(pool, intents=names)
    column = pa.chunked_array([[names]], pa.list_(pa.list_(pa.int32())))
    monkeypatch.setattr(store, "intents", lambda _: ListsOfLists.of(column))
    (labels,) = gold_labels(store, [pool.row], with_intents=with_intents)
    assert labels.labels.tolist() == [int(candidate == pool.label) for candidate in range(4)]
    examples = examples_of([labels], store, layout)
    assert Counter(example.task for example in examples) == expected
    for example in examples:
        ids, _ = encode(example, pool, layout)
        if example.task == "intent":
            assert names[example.position]
            written = layout.intent_question(pool.context, pool.intents, example.position)
        else:
            view = pool.intents if example.task == "answer_intent" else None
            written = layout.pair(layout.context_ids(pool.context, view), pool.candidates[example.position])
        assert ids.tolist() == written[0].tolist()


def test_a_pseudo_labelled_pool_is_learnt_plain_and_where_kept_with_intents_in_that_view_too(
    pool: TokenPool, store: TokenStore, layout: Layout
) -> None:
    labels = PairLabels(
        row=pool.row, candidates=np.array([0, 3]), labels=np.array([1, 0]), intent_view=np.array([False, True]),
        intents=[[2], [], [0, 1]], learn_intents=True,
    )  # fmt: skip
    examples = examples_of([labels], store, layout)
    assert Counter(example.task for example in examples) == {"answer_plain": 2, "answer_intent": 1, "intent": 2}
    with_intents = next(example for example in examples if example.task == "answer_intent")
    assert labels.candidates[with_intents.position] == 3
    assert target(with_intents, 7).tolist() == [0.0]
    assert [target(e, 4).tolist() for e in examples if e.task == "intent"] == [[0, 0, 1, 0], [1, 1, 0, 0]]


@pytest.mark.parametrize("turn_separators", [False, True])
@pytest.mark.parametrize("max_context_tokens", [9, 30, 400])
def test_planned_lengths_are_those_of_the_inputs(
    store: TokenStore, layout: Layout, max_context_tokens: int, turn_separators: bool
) -> None:
    budget = Budget(max_context_tokens=max_context_tokens, max_candidate_tokens=16)
    short = replace(layout, budget=budget, turn_separators=turn_separators)
    for pool in store.pools(range(6)):
        bare, full = [[] for _ in pool.context], [[0, 1, 2] for _ in pool.context]
        (gold,) = gold_labels(store, [pool.row], with_intents=True)
        for intents in (pool.intents, pool.intents[:1], bare, full):
            labels = replace(gold, intents=intents, intent_view=np.ones(4, bool), learn_intents=True)
            examples = examples_of([labels], store, short)
            assert len(examples) == 8 + sum(bool(names) for names in intents)
            for example in examples:
                assert example.length == len(encode(example, pool, short)[0])


def test_negatives_are_at_most_so_many_for_each_positive() -> None:
    labels = PairLabels(
        row=0, candidates=np.arange(10), labels=(np.arange(10) == 4).astype(int), intent_view=np.arange(10) % 2 == 0,
        intents=(), learn_intents=False,
    )  # fmt: skip
    drawn = labels.at(sampled_positions(labels.labels, 3, np.random.default_rng(0)))
    assert len(drawn.candidates) == 4
    assert drawn.candidates[drawn.labels == 1].tolist() == [4]
    assert (drawn.intent_view == (drawn.candidates % 2 == 0)).all()
    none_right = replace(labels, labels=np.zeros(10, int))
    for number, expected in ((None, 10), (3, 4), (9, 10)):
        assert len(sampled_positions(none_right.labels, number, np.random.default_rng(0))) == expected
    for number in (None, 9, 20):
        assert sampled_positions(labels.labels, number, np.random.default_rng(0)).tolist() == list(range(10))


def curriculum(store: TokenStore, layout: Layout, rows: list[int], **settings: object) -> AnswerCurriculum:
    pools = gold_labels(store, rows, with_intents=True)
    return AnswerCurriculum(
        pools, store, layout, BinaryCrossEntropy.Config().build(),
        TrainingSettings.model_validate(settings), num_intents=7, seed=1,
    )  # fmt: skip


def pairs(batches: Sequence[list[Example]], task: str) -> Counter[tuple[int, int]]:
    return Counter(
        (example.labels.row, int(example.labels.candidates[example.position]))
        for batch in batches
        for example in batch
        if example.task == task
    )


def test_an_epoch_holds_every_example_once_one_task_a_batch(store: TokenStore, layout: Layout) -> None:
    rows = list(range(12))
    batches = curriculum(store, layout, rows, batch_size=5).batches(0)
    assert all(len({example.task for example in batch}) == 1 for batch in batches)
    assert all(1 <= len(batch) <= 5 for batch in batches)
    everything = Counter((row, candidate) for row in rows for candidate in range(4))
    assert pairs(batches, "answer_plain") == pairs(batches, "answer_intent") == everything
    asked = Counter((e.labels.row, e.position) for batch in batches for e in batch if e.task == "intent")
    assert asked == Counter((pool.row, place) for pool in store.pools(rows) for place in range(len(pool.context)))
    tasks = [batch[0].task for batch in batches]
    assert tasks != sorted(tasks)  # tasks are mixed


def test_negatives_are_drawn_anew_each_epoch_and_are_the_same_in_both_views(store: TokenStore, layout: Layout) -> None:
    made, again = (curriculum(store, layout, list(range(12)), train_negatives=1) for _ in range(2))
    epochs = [made.batches(epoch) for epoch in range(3)]
    for batches in epochs:
        assert pairs(batches, "answer_plain") == pairs(batches, "answer_intent")
        drawn = [e for batch in batches for e in batch if e.task == "answer_plain"]
        assert Counter(int(target(e, 7)[0]) for e in drawn) == {0: 12, 1: 12}
    assert len({frozenset(pairs(batches, "answer_plain")) for batches in epochs}) == 3
    plans = [
        [[(e.task, e.labels.row, e.position) for e in b] for b in batches] for batches in (epochs[1], again.batches(1))
    ]
    assert plans[0] == plans[1]  # a function of seed and number


def test_pairs_have_the_rows_and_labels_of_their_examples(store: TokenStore, layout: Layout) -> None:
    every = curriculum(store, layout, [5, 2, 9]).pairs()
    examples = [every.example(number) for number in range(len(every))]
    assert every.rows_M.tolist() == [example.labels.row for example in examples]
    right = [example.labels.labels[example.position] for example in examples]
    assert every.labels(np.arange(len(every))).tolist() == right


def test_no_batch_exceeds_the_token_budget(store: TokenStore, layout: Layout) -> None:
    pools = gold_labels(store, range(20), with_intents=True)
    settings, loss = TrainingSettings(batch_size=64, max_tokens_per_batch=600), BinaryCrossEntropy.Config().build()
    for batch in AnswerCurriculum(pools, store, layout, loss, settings, num_intents=7, seed=1).batches(0):
        longest = max(len(encode(example, store.pool(example.labels.row), layout)[0]) for example in batch)
        assert len(batch) * longest <= 600


def test_a_head_whose_data_set_is_the_batch_gets_right_and_wrong_pairs_in_each(
    store: TokenStore, layout: Layout
) -> None:
    pools = gold_labels(store, range(24), with_intents=True)
    settings = TrainingSettings(train_negatives=1, batch_size=8)
    loss = HeadObjective.Config().build()
    batches = AnswerCurriculum(pools, store, layout, loss, settings, num_intents=7, seed=1).batches(0)
    for task in ("answer_plain", "answer_intent"):
        of_task = [batch for batch in batches if batch[0].task == task]
        assert [[int(target(e, 7)[0]) for e in batch] for batch in of_task] == [[1] * 4 + [0] * 4] * 6


def test_labels_as_arrays_are_those_of_each_pool(store: TokenStore) -> None:
    bare = PairLabels(4, np.array([1, 3]), np.array([0.0, 0.75]), np.array([False, False]), precision=0.5)
    kept = PairLabels(2, np.array([0]), np.array([1.0]), np.array([True]), [[1], [], [0, 3]], learn_intents=True)
    joined = LabelledPools.joined([LabelledPools.of([bare, kept]), gold_labels(store, [5], with_intents=True)])
    assert joined.rows_P.tolist() == [4, 2, 5]
    assert joined[0].intents == []
    assert joined[1].intents == kept.intents
    assert joined[2].intents == store.pool(5).intents
    for made, given in zip(joined, (bare, kept), strict=False):
        assert (made.row, made.learn_intents, made.precision) == (given.row, given.learn_intents, given.precision)
        for name in ("candidates", "labels", "intent_view"):
            assert getattr(made, name).tolist() == getattr(given, name).tolist()
