from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.tiny_models import tiny_ranker

from icalib.core.errors import SettingError
from icalib.data.encoding import Budget, TokenStore, write_tokens
from icalib.data.schema import Pool
from icalib.encoders.backbone import Tokenizer
from icalib.regimes.post_training import PostTraining, PostTrainingCurriculum
from icalib.regimes.ranker import Ranker

CPU = torch.device("cpu")


def curriculum(store: TokenStore, ranker: Ranker, **settings: object) -> PostTrainingCurriculum:
    return PostTrainingCurriculum(
        store,
        range(len(store)),
        ranker.layout,
        PostTraining.model_validate(settings),
        Tokenizer(ranker.config.encoder.backbone).mask_token,
        ranker.encoder.vocabulary,
    )


@pytest.fixture(scope="module")
def ranker(tiny_bert: Path) -> Ranker:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Ranker(tiny_ranker(tiny_bert).config, masked_words=True).eval()


def examples(made: PostTrainingCurriculum, epoch: int = 0) -> list[object]:
    return [example for batch in made.batches(epoch) for example in batch]


def words(store: TokenStore, row: int, place: int) -> bytes:
    return store.pool(row).context[place].tobytes()


def test_no_target_is_a_candidate_of_a_pool_of_the_same_dialogue(store: TokenStore, ranker: Ranker) -> None:
    answers: dict[str, set[bytes]] = {}
    for pool in store.pools(range(len(store))):
        answers.setdefault(pool.dialog_id, set()).update(ids.tobytes() for ids in pool.candidates)
    targets = {
        (store.pool(e.window.row).dialog_id, words(store, *e.window)) for e in examples(curriculum(store, ranker))
    }
    assert len(targets) > 10
    assert all(target not in answers[dialogue] for dialogue, target in targets)


def test_half_of_the_next_utterances_are_wrong_and_each_wrong_one_differs(store: TokenStore, ranker: Ranker) -> None:
    drawn = examples(curriculum(store, ranker))
    right = [e for e in drawn if e.other is None]
    wrong = [e for e in drawn if e.other is not None]
    assert len(right) == len(wrong) > 10
    assert {e.window for e in right} == {e.window for e in wrong}
    assert all(words(store, *e.other) != words(store, *e.window) for e in wrong)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_wrong_utterances_come_from_the_same_dialogue_as_often_as_asked(
    store: TokenStore, ranker: Ranker, share: float
) -> None:
    wrong = [e for e in examples(curriculum(store, ranker, wrong_from_same_dialogue=share)) if e.other is not None]
    deep = [e for e in wrong if e.window.place > 1]  # the first reply has no earlier utterance but its own question
    same = [store.pool(e.other.row).dialog_id == store.pool(e.window.row).dialog_id for e in deep]
    assert len(deep) > 5
    assert np.mean(same) == share
    if share:
        assert all(e.other.place < e.window.place - 1 for e in deep)


def test_windows_are_drawn_anew_each_epoch_up_to_a_number(store: TokenStore, ranker: Ranker) -> None:
    made = curriculum(store, ranker, max_windows=8)
    first, second, again = examples(made, 0), examples(made, 1), examples(made, 0)
    assert len(first) == len(second) == 16
    assert first == again
    assert {e.window for e in first} != {e.window for e in second}


def test_words_are_hidden_at_the_share_and_never_specials(store: TokenStore, ranker: Ranker) -> None:
    made = curriculum(store, ranker, masked_share=0.3)
    layout = ranker.layout
    mask = Tokenizer(ranker.config.encoder.backbone).mask_token
    encoded = [made._encode(e) for e in examples(made)] * 20
    torch.manual_seed(0)
    hidden, places, targets = made._hide(encoded)
    ordinary = sum(int((~np.isin(ids, [layout.cls, layout.separator])).sum()) for ids, _ in encoded)
    assert len(places) / ordinary == pytest.approx(0.3, abs=0.02)
    assert len({tuple(place) for place in places}) == len(places)
    before = np.array([encoded[row][0][place] for row, place in places])
    after = np.array([hidden[row][0][place] for row, place in places])
    assert targets.tolist() == before.tolist()
    assert not np.isin(before, [layout.cls, layout.separator]).any()
    assert np.mean(after == mask) == pytest.approx(0.8, abs=0.03)
    assert np.mean(after == before) == pytest.approx(0.1, abs=0.03)
    touched = {tuple(place) for place in places}
    for row, ((old, start), (new, new_start)) in enumerate(zip(encoded, hidden, strict=True)):
        assert start == new_start
        assert all((row, place) in touched for place in np.flatnonzero(old != new))


def test_the_loss_adds_masked_words_by_weight(store: TokenStore, ranker: Ranker) -> None:
    batch = curriculum(store, ranker).batches(0)[0]
    with torch.inference_mode():
        task, bare = curriculum(store, ranker, masked_word_weight=0).losses(ranker, batch, CPU)
        assert task == "next_utterance"
        summed = []
        for weight in (0.1, 0.2):
            torch.manual_seed(1)
            task, loss = curriculum(store, ranker, masked_word_weight=weight).losses(ranker, batch, CPU)
            summed.append(loss)
    assert task == "post_training"
    word_part = summed[1] - summed[0]
    assert word_part.item() / (0.1 * len(batch)) == pytest.approx(np.log(ranker.encoder.vocabulary), rel=0.2)
    assert bare.item() / len(batch) < 5


def small_store(folder: Path, dialogues: dict[str, list[str]]) -> TokenStore:
    pools = [
        Pool.model_validate(
            {
                "pool_id": name, "dialog_id": name, "split": "train", "candidates": ["98", "99"], "label": 0,
                "context": [{"speaker": "user", "text": text} for text in texts],
            }
        )
        for name, texts in dialogues.items()
    ]  # fmt: skip
    write_tokens(folder / "t.arrow", [pools], lambda texts: [[int(w) for w in t.split()] for t in texts], (), Budget())
    return TokenStore(folder / "t.arrow")


@pytest.mark.parametrize(
    "dialogues",
    [{"a": ["10"], "b": ["11"]}, {"a": ["10", "11"], "b": ["12", "11"]}, {"a": ["10", "98"], "b": ["10", "99"]}],
)
def test_contexts_without_two_targets_are_an_error_with_a_cure(
    tmp_path: Path, ranker: Ranker, dialogues: dict[str, list[str]]
) -> None:
    with pytest.raises(SettingError, match="post_training=null"):
        curriculum(small_store(tmp_path, dialogues), ranker)


def test_one_other_target_behind_many_of_the_same_is_enough(tmp_path: Path, ranker: Ranker) -> None:
    dialogues = {str(number): [str(number), "50"] for number in range(100, 300)}
    made = curriculum(small_store(tmp_path, {**dialogues, "last": ["10", "11"]}), ranker, max_windows=None)
    assert len(examples(made)) == 2 * 201


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "dialogues",
    [
        {"a": ["10", "11", "12"]},  # one dialogue alone
        {"a": ["10", "11", "12", "13", "14"], "b": ["10", "11"]},  # the others say what this one says
        {"a": ["10", "11", "12", "10", "11"], "b": ["20", "21"]},  # a dialogue that repeats itself
    ],
)
def test_small_and_repetitive_corpora_still_get_wrong_utterances(
    tmp_path: Path, ranker: Ranker, dialogues: dict[str, list[str]]
) -> None:
    store = small_store(tmp_path, dialogues)
    made = curriculum(store, ranker, wrong_from_same_dialogue=0.5)
    for epoch in range(10):
        wrong = [e for e in examples(made, epoch) if e.other is not None]
        assert wrong
        assert all(words(store, *e.other) != words(store, *e.window) for e in wrong)
