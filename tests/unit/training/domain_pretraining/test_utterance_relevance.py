from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.dialogues import number_store

from icalib.data.encoding import TokenStore
from icalib.models.ranker import Ranker
from icalib.training.domain_pretraining.utterance_relevance import (
    NEXT,
    OTHER_DIALOGUE,
    SAME_DIALOGUE,
    UtteranceRelevance,
)


@pytest.fixture(scope="module")
def dialogues(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    """60 dialogues of four utterances of their own."""
    pools = {str(number): [str(10 * number + place) for place in range(1000, 1004)] for number in range(60)}
    return number_store(tmp_path_factory.mktemp("dialogues"), pools)


def kind(store: TokenStore, ranker: Ranker, **settings: object) -> UtteranceRelevance:
    config = UtteranceRelevance.Config.model_validate(settings)
    return config.build(store=store, rows=range(len(store)), layout=ranker.layout)


def drawn(made: UtteranceRelevance, epoch: int = 0) -> list[tuple[list[int], int, int]]:
    """Context ids, id of the last utterance and class of each example of an epoch."""
    examples = []
    for batch in made.batches(epoch):
        collated = made.collate(batch)
        for (ids, start), relevance in zip(collated.encoded, collated.classes, strict=True):
            examples.append(([int(i) for i in ids[1 : start - 1]], int(ids[start]), relevance))
    return examples


def test_a_quarter_is_next_a_quarter_from_the_same_dialogue_and_half_from_others_anew_each_epoch(
    dialogues: TokenStore, ranker: Ranker
) -> None:
    made, separator = kind(dialogues, ranker), ranker.layout.separator
    epochs = [drawn(made, epoch) for epoch in (0, 1, 2, 3, 0)]
    assert epochs[0] == epochs[4]
    assert sorted(epochs[0]) != sorted(epochs[1])
    examples = [example for epoch in epochs[:4] for example in epoch]
    shares = np.bincount([relevance for _, _, relevance in examples]) / len(examples)
    # Three standard errors of a share of 240 draws are at most 0.1.
    assert shares.tolist() == pytest.approx([0.5, 0.25, 0.25], abs=0.1)
    for context, last, relevance in examples:
        assert context[1::2] == [separator] * 2
        own = (context[0] - 1000) // 10 * 10 + 1000
        assert context[::2] == [own, own + 1, own + 2]
        if relevance == NEXT:
            assert last == own + 3
        elif relevance == SAME_DIALOGUE:
            assert own <= last < own + 3
        else:
            assert relevance == OTHER_DIALOGUE
            assert last // 10 != own // 10


def test_windows_are_cut_to_their_length_at_the_start(tmp_path: Path, ranker: Ranker) -> None:
    long = " ".join(["7"] * 30)
    store = number_store(tmp_path, {"a": [long, "10", "11"], "b": [long, "12", "13"]})
    made = kind(store, ranker, max_length=30)
    collated = made.collate([example for batch in made.batches(0) for example in batch])
    budget = ranker.layout.budget.max_candidate_tokens
    for ids, start in collated.encoded:
        assert len(ids) <= 30
        assert start - 2 == 30 - budget - 3
        assert ids[start - 2] in (10, 12)
