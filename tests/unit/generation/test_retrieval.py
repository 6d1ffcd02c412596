from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.pool_folders import read_pools
from hypothesis import given
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi

from icalib.data.bm25 import tokenize
from icalib.data.pools import as_pools, read_rows
from icalib.data.schema import SPLITS, Pool
from icalib.data.selection import Selection
from icalib.data.splits import text_key
from icalib.generation.language_model import context_texts
from icalib.generation.retrieval import (
    BM25Index,
    Retrieval,
    gold,
    is_near_duplicate,
    question_index,
    sentences,
    training_rows,
)

SELECTION = Selection(labelled_fraction=0.3)


def retrieval(data: Path, selection: Selection = SELECTION, **values: Any) -> Retrieval:
    made = Retrieval.Config.model_validate(values)
    return made.build(data=data, selection=selection, models={}, device=torch.device("cpu"))


@pytest.fixture(scope="module")
def labelled(tiny_pools: Path) -> list[Pool]:
    return list(as_pools(read_rows(tiny_pools, "train", training_rows(tiny_pools, SELECTION, "labelled"))))


words = st.lists(st.sampled_from(["disk", "fan", "Fan", "the", "reboot", "cable", "9"]), min_size=0, max_size=8)


@given(st.lists(words, min_size=1, max_size=8), words)
def test_scores_are_those_of_rank_bm25(texts: list[list[str]], query: list[str]) -> None:
    joined = [" ".join(text) for text in texts]
    places, scores = BM25Index(joined).ranked(" ".join(query))
    if not any(map(tokenize, joined)):
        assert not len(places)
        return
    expected = np.round(BM25Okapi([tokenize(text) for text in joined]).get_scores(tokenize(" ".join(query))), 9)
    np.testing.assert_allclose(scores, expected[places], atol=1e-9)
    assert sorted(places) == np.flatnonzero(expected > 0).tolist()
    assert list(zip(-scores, places, strict=True)) == sorted(zip(-scores, places, strict=True))


def test_grey_answers_are_the_best_for_the_users_last_utterance(tiny_pools: Path, labelled: list[Pool]) -> None:
    repository = {text_key(c): c for pool in read_pools(tiny_pools, "train") for c in pool.candidates}
    okapi = BM25Okapi([tokenize(text) for text in repository.values()])
    for pool, (best, *_) in zip(labelled, retrieval(tiny_pools).grey_answers(labelled, 2, seed=1), strict=True):
        query = pool.context[question_index(pool.context)].text
        scores = dict(zip(repository, okapi.get_scores(tokenize(query)), strict=True))
        others = [
            key
            for key, text in repository.items()
            if key not in map(text_key, pool.candidates) and not is_near_duplicate(text, gold(pool))
        ]
        assert scores[text_key(best)] == pytest.approx(max(scores[key] for key in others))


def test_no_text_of_validation_or_test_dialogues_is_made_up(tiny_pools: Path, labelled: list[Pool]) -> None:
    own = {text for pool in read_pools(tiny_pools, "train") for text in (*context_texts(pool), *pool.candidates)}
    foreign = {
        text
        for split in SPLITS[1:]
        for pool in read_pools(tiny_pools, split)
        for text in (*context_texts(pool), *pool.candidates)
    } - own
    assert len(foreign) > 20
    generator = retrieval(tiny_pools)
    answers = [a for answers in generator.grey_answers(labelled, 5, 1) for a in answers]
    contexts = [u for pool in generator.contexts(labelled, 1) for c in pool if c for u in c]
    assert answers
    assert contexts
    assert {*answers, *contexts} <= own


def test_a_wrong_answer_gets_the_context_that_it_came_from(tiny_pools: Path, labelled: list[Pool]) -> None:
    true: dict[int, list[Pool]] = {}
    for pool in labelled:
        true.setdefault(text_key(gold(pool)), []).append(pool)
    known: list[bool] = []
    for pool, contexts in zip(labelled, retrieval(tiny_pools).contexts(labelled, 1), strict=True):
        for candidate, context in zip(pool.candidates, contexts, strict=True):
            if context:
                origins = [o for o in true.get(text_key(candidate), ()) if o.dialog_id != pool.dialog_id]
                assert not origins or context in [tuple(context_texts(o)) for o in origins]
                known.append(bool(origins))
    assert 0 < sum(known) < len(known)  # the others have that of the most similar answer


def test_contexts_are_of_other_dialogues_of_labelled_pools(tiny_pools: Path, labelled: list[Pool]) -> None:
    """One of the same dialogue would make a wrong answer right."""
    dialogues = {tuple(context_texts(pool)): pool.dialog_id for pool in labelled}
    for pool, contexts in zip(labelled, retrieval(tiny_pools).contexts(labelled, 1), strict=True):
        assert all(dialogues[c] != pool.dialog_id for c in contexts if c)


def with_answer(pool: Pool, text: str) -> Pool:
    candidates = tuple(text if n == pool.label else candidate for n, candidate in enumerate(pool.candidates))
    return pool.model_copy(update={"candidates": candidates})


def test_another_right_answer_has_the_same_sentences_in_another_order(tiny_pools: Path, labelled: list[Pool]) -> None:
    long = "Reboot it. Wait a minute. Then log in."
    pool = labelled[0]
    (made,), (only,) = retrieval(tiny_pools).right_answers([with_answer(pool, long), pool], seed=1)
    assert made != long
    assert sorted(sentences(made)) == sorted(sentences(long))
    assert (len(sentences(gold(pool))), only) == (1, gold(pool))
