from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.pool_folders import read_pools
from helpers.tiny_models import BUDGET, tiny_ranker, token_store
from hypothesis import given
from hypothesis import strategies as st

from icalib.core.component import validated
from icalib.core.errors import DamagedFileError, SettingError
from icalib.data.encoding import Budget, Layout, PoolLayout, TokenStore, write_tokens
from icalib.data.pools import as_pools, iter_pools, read_pool_set
from icalib.encoders.backbone import Tokenizer

CPU = torch.device("cpu")
CLS, SEP, PAD, FIRST_INTENT = 101, 102, 0, 1000


def layout(
    *, separators: int = 1, context: int = 20, candidate: int = 5, max_length: int = 128, turns: bool = False
) -> Layout:
    budget = Budget(max_context_tokens=context, max_candidate_tokens=candidate)
    return Layout(CLS, SEP, PAD, separators, FIRST_INTENT, max_length, budget, turn_separators=turns)


def ids(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


CONTEXT = [ids(1, 2), ids(3), ids(4, 5, 6)]
INTENTS = [[0], [], [2, 1]]


def test_bert_writes_a_plain_pair_with_one_separator() -> None:
    pair, start = layout().pair(layout().context_ids(CONTEXT, None), ids(7, 8))
    assert pair.tolist() == [CLS, 1, 2, 3, 4, 5, 6, SEP, 7, 8, SEP]
    assert start == 8  # where the candidate starts: segment 1 is the candidate and the last separator


def test_the_intent_view_writes_intents_after_their_utterance() -> None:
    assert layout().context_ids(CONTEXT, INTENTS).tolist() == [1, 2, 1000, 3, 4, 5, 6, 1002, 1001]


def test_an_intent_question_ends_with_the_utterance_and_knows_the_intents_before_it() -> None:
    question, start = layout().intent_question(CONTEXT, INTENTS, 1)
    assert question.tolist() == [CLS, 1, 2, 1000, 3, SEP]
    assert start == len(question)  # no second segment
    first, _ = layout().intent_question(CONTEXT, [], 0)
    assert first.tolist() == [CLS, 1, 2, SEP]


def test_turn_separators_are_between_utterances_after_their_intents() -> None:
    turns = layout(turns=True)
    pair, start = turns.pair(turns.context_ids(CONTEXT, None), ids(7, 8))
    assert pair.tolist() == [CLS, 1, 2, SEP, 3, SEP, 4, 5, 6, SEP, 7, 8, SEP]
    assert start == 10
    assert turns.context_ids(CONTEXT, INTENTS).tolist() == [1, 2, 1000, SEP, 3, SEP, 4, 5, 6, 1002, 1001]
    assert turns.intent_question(CONTEXT, INTENTS, 1)[0].tolist() == [CLS, 1, 2, 1000, SEP, 3, SEP]
    assert layout(turns=True, context=5).context_ids(CONTEXT, None).tolist() == [3, SEP, 4, 5, 6]


def test_a_long_context_keeps_its_end_and_intents_count() -> None:
    assert layout(context=4).context_ids(CONTEXT, INTENTS).tolist() == [5, 6, 1002, 1001]
    assert layout(context=4).context_ids(CONTEXT, None).tolist() == [3, 4, 5, 6]


utterances = st.lists(
    st.lists(st.integers(1, 99), max_size=12).map(lambda numbers: ids(*numbers)), min_size=1, max_size=5
)


@given(
    context=utterances,
    intents=st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=5),
    candidate=st.lists(st.integers(1, 99), max_size=6),
    separators=st.integers(1, 2),
    max_length=st.integers(12, 40),
    max_context=st.integers(1, 60),
    turns=st.booleans(),
)
def test_no_input_is_longer_than_the_positions_of_the_encoder(
    context: list[np.ndarray],
    intents: list[list[int]],
    candidate: list[int],
    separators: int,
    max_length: int,
    max_context: int,
    turns: bool,
) -> None:
    made = layout(separators=separators, context=max_context, candidate=6, max_length=max_length, turns=turns)
    for view in (None, intents):
        context_ids = made.context_ids(context, view)
        assert len(context_ids) <= max_context
        pair, _ = made.pair(context_ids, ids(*candidate))
        tokens = sum(map(len, context)) + sum(map(len, (view or [])[: len(context)]))
        planned = made.context_length(tokens, len(context))
        assert len(context_ids) == planned
        assert len(pair) == made.pair_length(planned, len(candidate)) <= max_length
    question, _ = made.intent_question(context, intents, len(context) - 1)
    tokens = sum(map(len, [*context, *intents[: len(context) - 1]]))
    assert len(question) == made.question_length(made.context_length(tokens, len(context))) <= max_length


@given(number=st.integers(0, 60), separators=st.integers(1, 2), max_length=st.integers(12, 40))
def test_a_single_text_keeps_as_much_of_its_start_as_the_encoder_has_positions(
    number: int, separators: int, max_length: int
) -> None:
    made = layout(separators=separators, context=60, candidate=6, max_length=max_length)
    text = np.arange(number, dtype=np.int32)
    kept = min(number, max_length - 2)
    assert made.single(text).tolist() == [CLS, *range(kept), SEP]


def pool_layout(*, separators: int, max_length: int = 128) -> PoolLayout:
    budget = Budget(max_context_tokens=20, max_candidate_tokens=5)
    return PoolLayout(CLS, SEP, PAD, separators, FIRST_INTENT, max_length, budget)


@pytest.mark.parametrize("separators", [1, 2])
def test_a_pool_as_one_input_has_a_marker_before_each_candidate(separators: int) -> None:
    layout = pool_layout(separators=separators)
    ((written, start),) = layout.inputs(CONTEXT, None, [ids(7, 8), ids(), ids(9)])
    mark = layout.marker
    assert written.tolist() == [
        CLS, 1, 2, 3, 4, 5, 6, *[SEP] * separators, mark, 7, 8, SEP, mark, SEP, mark, 9, SEP
    ]  # fmt: skip
    assert start == 7 + separators
    assert mark == FIRST_INTENT


@given(
    context=utterances,
    candidates=st.lists(st.lists(st.integers(1, 99), max_size=8), min_size=1, max_size=12),
    separators=st.integers(1, 2),
    max_length=st.integers(12, 80),
)
def test_a_pool_fits_whatever_its_number_of_candidates_or_is_refused(
    context: list[np.ndarray], candidates: list[list[int]], separators: int, max_length: int
) -> None:
    layout = pool_layout(separators=separators, max_length=max_length)
    most = (max_length - separators - 2) // 3
    pool = [ids(*candidate) for candidate in candidates]
    if len(candidates) > most:
        with pytest.raises(SettingError, match=rf"pool has {len(candidates)} candidates.*{max_length} positions hold"):
            layout.inputs(context, None, pool)
        return
    ((written, start),) = layout.inputs(context, None, pool)
    length = layout.context_length(sum(map(len, context)), len(context))
    assert layout.input_lengths(length, np.array(list(map(len, candidates)))).tolist() == [len(written)]
    assert len(written) <= max_length
    places = np.flatnonzero(written == layout.marker)
    assert places[0] == start
    assert len(places) == len(candidates)
    words = [written[a + 1 : b - 1].tolist() for a, b in zip(places, [*places[1:], len(written)], strict=True)]
    assert all(word == candidate[: len(word)] for word, candidate in zip(words, candidates, strict=True))
    kept = [start - 1 - separators, *map(len, words)]
    room = max_length - layout.budget.max_candidate_tokens - separators - 2  # beside one whole candidate
    whole = [min(sum(map(len, context)), 20, room), *map(len, candidates)]
    if sum(whole) + 1 + separators + 2 * len(candidates) <= max_length:
        assert kept == whole
    assert all(now == before or now == max(kept) for now, before in zip(kept, whole, strict=True))


def test_a_candidate_budget_beyond_the_positions_is_refused() -> None:
    with pytest.raises(SettingError, match=r"max_candidate_tokens is 100.*only 64 positions"):
        layout(candidate=100, max_length=64)
    with pytest.raises(SettingError, match="max_context_tokens"):
        validated(Budget, {"max_context_tokens": 0})


@pytest.mark.parametrize("name", ["tiny_bert", "tiny_roberta"])
def test_the_backbone_decides_the_layout(name: str, request: pytest.FixtureRequest) -> None:
    backbone = request.getfixturevalue(name)
    ranker = tiny_ranker(backbone, intents=("a", "b"))
    made = ranker.layout
    assert made.num_separators == (1 if name == "tiny_bert" else 2)
    assert made.max_length == 128
    tokenizer = Tokenizer(str(backbone))
    expected = tokenizer._tokenizer("my printer", "is dead")["input_ids"]
    context, candidate = (np.array(part, np.int32) for part in tokenizer(["my printer", "is dead"]))
    assert made.pair(made.context_ids([context], None), candidate)[0].tolist() == expected


def test_intent_tokens_are_new_ids_that_no_text_can_write(tiny_bert: Path) -> None:
    ranker = tiny_ranker(tiny_bert, intents=("potential_answer", "original_question"))
    vocabulary = ranker.encoder.vocabulary
    assert ranker.layout.first_intent == vocabulary
    assert ranker.encoder.backbone.get_input_embeddings().weight.shape[0] == vocabulary + 2
    texts = ["potential_answer original_question [CLS] OQ", "[INTENT]"]
    assert all(number < vocabulary for text in Tokenizer(str(tiny_bert))(texts) for number in text)


def test_a_token_store_gives_back_what_was_tokenised(tiny_pools: Path, tiny_bert: Path, tmp_path: Path) -> None:
    store = token_store(tiny_pools, "train", tiny_bert, tmp_path)
    pools = read_pools(tiny_pools, "train")
    names = read_pool_set(tiny_pools).intents
    tokenizer = Tokenizer(str(tiny_bert))
    assert len(store) == len(pools)
    assert store.column("label").tolist() == [pool.label for pool in pools]
    assert store.column("label_order").tolist() == [pool.label_order for pool in pools]
    for row in (0, len(pools) // 2, len(pools) - 1):
        tokens, pool = store.pool(row), pools[row]
        assert (tokens.row, tokens.pool_id, tokens.dialog_id, tokens.label) == (
            row, pool.pool_id, pool.dialog_id, pool.label,
        )  # fmt: skip
        assert [[names[i] for i in utterance] for utterance in tokens.intents] == [
            list(u.intents) for u in pool.context
        ]
        context = tokenizer([u.text for u in pool.context])
        assert [u.tolist() for u in tokens.context] == [u[-BUDGET.max_context_tokens :] for u in context]
        candidates = tokenizer(list(pool.candidates))
        assert [c.tolist() for c in tokens.candidates] == [c[: BUDGET.max_candidate_tokens] for c in candidates]
    assert [pool.row for pool in store.pools([3, 1])] == [3, 1]


def test_a_split_in_several_files_is_that_in_one(tiny_pools: Path, tiny_bert: Path, tmp_path: Path) -> None:
    batches = [list(as_pools(batch)) for batch in iter_pools(tiny_pools, "train", batch_size=7)]
    tokenize, intents = Tokenizer(str(tiny_bert)), read_pool_set(tiny_pools).intents
    write_tokens(tmp_path / "one.arrow", batches, tokenize, intents, BUDGET)
    for number, start in enumerate(range(0, len(batches), 3)):
        path = tmp_path / "several" / f"{number:06d}.arrow"
        write_tokens(path, batches[start : start + 3], tokenize, intents, BUDGET)
    one, several = TokenStore(tmp_path / "one.arrow"), TokenStore(tmp_path / "several")
    assert len(list((tmp_path / "several").iterdir())) > 2
    assert len(several) == len(one)
    for row in range(len(one)):
        assert readable_pool(several, row) == readable_pool(one, row)
    for name in ("label", "label_order", "pool_id"):
        assert several.column(name).tolist() == one.column(name).tolist()
    for lists in ("context", "candidates"):
        assert [part.tolist() for part in several.lengths(lists)] == [part.tolist() for part in one.lengths(lists)]
    expected = [len(ids) for pool in one.pools(range(len(one))) for ids in pool.candidates]
    assert one.lengths("candidates").values.tolist() == expected
    with pytest.raises(DamagedFileError, match="missing"):
        TokenStore(tmp_path / "none")


def readable_pool(store: TokenStore, row: int) -> list[object]:
    pool = store.pool(row)
    texts = [ids.tolist() for ids in (*pool.context, *pool.candidates)]
    return [pool.row, pool.pool_id, pool.dialog_id, texts, pool.intents, pool.label, pool.also_right]
