from __future__ import annotations

from collections import Counter
from pathlib import Path

from helpers.dialogues import number_store

from icalib.data.encoding import TokenStore
from icalib.models.ranker import Ranker
from icalib.training.domain_pretraining.utterance_order import UtteranceOrder


def asked(store: TokenStore, ranker: Ranker, epoch: int = 0) -> list[tuple[str, list[int], int]]:
    """Task, ids without [CLS] and separators, and class of each example of an epoch."""
    kind = UtteranceOrder.Config().build(store=store, rows=range(len(store)), layout=ranker.layout)
    special = (ranker.layout.cls, ranker.layout.separator)
    return [
        (question.task, [int(i) for i in ids if i not in special], label)
        for question in map(kind.collate, kind.batches(epoch))
        for (ids, _), label in zip(question.encoded, question.classes, strict=True)
    ]


def test_each_question_has_as_many_of_either_class_and_a_batch_asks_one(store: TokenStore, ranker: Ranker) -> None:
    kind = UtteranceOrder.Config(training={"batch_size": 4})  # type: ignore[arg-type]
    made = kind.build(store=store, rows=range(20), layout=ranker.layout)
    batches = made.batches(0)
    assert all(len({example.task for example in batch}) == 1 for batch in batches)
    order = [batch[0].task for batch in batches]
    assert order not in (sorted(order), sorted(order, reverse=True))
    asked_for = [question for question in map(made.collate, batches)]
    counts = Counter((question.task, label) for question in asked_for for label in question.classes)
    assert counts["next_utterance", 0] == counts["next_utterance", 1] > 5
    assert counts["utterance_order", 0] == counts["utterance_order", 1] > 5


def test_permuted_windows_say_the_same_in_another_order_and_wrong_ones_end_otherwise(
    tmp_path: Path, ranker: Ranker
) -> None:
    store = number_store(tmp_path, {"a": ["10", "11", "12", "13"], "b": ["20", "21", "22", "23"]})
    for epoch in range(5):
        for task, words, label in asked(store, ranker, epoch):
            in_order = list(range(words[0], words[0] + len(words)))
            assert (words == in_order) == bool(label)
            if task == "utterance_order":
                assert sorted(words) == list(range(min(words), min(words) + len(words)))
            else:
                assert words[:-1] == in_order[:-1]
                assert (words[-1] // 10 == words[0] // 10) == bool(label)
