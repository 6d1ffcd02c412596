from __future__ import annotations

from unicodedata import normalize

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icalib.core.errors import DataError
from icalib.data.contexts import context_responses
from icalib.data.schema import Dialogue
from icalib.data.splits import LeakCheck, assigned_split, label_order, text_key, wording_key


def dialogue(speakers: str) -> Dialogue:
    names = {"u": "user", "a": "agent"}
    turns = [{"speaker": names[s], "text": f"t{n}"} for n, s in enumerate(speakers)]
    return Dialogue.model_validate({"dialog_id": "d", "utterances": turns})


@pytest.mark.parametrize(
    ("speakers", "min_context", "turns"),
    [
        ("uaua", 2, [3]),
        ("ua", 2, []),
        ("ua", 1, [1]),
        ("uuaa", 2, [2, 3]),
        ("aaaua", 2, [4]),  # the user speaks at turn 3 first
        ("aaa", 1, []),
    ],
)
def test_a_response_is_an_agents_answer_to_a_user(speakers: str, min_context: int, turns: list[int]) -> None:
    pairs = context_responses(dialogue(speakers), min_context=min_context)
    assert [pair.turn for pair in pairs] == turns


def test_context_is_the_last_turns() -> None:
    *_, pair = context_responses(dialogue("uauaua"), context_turns=3)
    assert [u.text for u in pair.context] == ["t2", "t3", "t4"]
    assert pair.response.text == "t5"
    assert [p.turn for p in context_responses(dialogue("uauaua"), last_turn_only=True)] == [5]


def test_assigned_splits_have_the_wanted_fractions_and_depend_on_seed_and_id_alone() -> None:
    splits = [assigned_split(f"d{n}", seed=3) for n in range(4000)]
    fractions = [splits.count(name) / 4000 for name in ("train", "validation", "test")]  # type: ignore[arg-type]
    assert fractions == pytest.approx([0.8, 0.1, 0.1], abs=0.02)
    assert splits[17] == assigned_split("d17", seed=3)
    assert splits != [assigned_split(f"d{n}", seed=4) for n in range(4000)]


@given(flags=st.lists(st.tuples(st.booleans(), st.booleans())), seed=st.integers(0, 99))
def test_label_order_puts_pools_with_intents_first(flags: list[tuple[bool, bool]], seed: int) -> None:
    intents, known = [a for a, _ in flags], [b for _, b in flags]
    order = label_order(intents, known, seed)
    assert ((order == -1) == ~np.array(known, dtype=bool)).all()
    first = [o for o, i in zip(order, intents, strict=True) if o >= 0 and i]
    rest = [o for o, i in zip(order, intents, strict=True) if o >= 0 and not i]
    assert sorted(first) == list(range(len(first)))
    start = len(first) + bool(first)  # after a gap
    assert sorted(rest) == list(range(start, start + len(rest)))


def test_the_words_of_a_text_count_not_the_signs_around_them() -> None:
    same = ["Have a nice day", "have a  nice day!", "“Have a nice day…”", "Have , a nice day ."]
    assert len(set(map(wording_key, same))) == 1
    others = ["1.50", "150", "कि", "की", "?", "??", "👍", "ok 👍", "ok", "e-mail", "email"]
    assert len(set(map(wording_key, others))) == len(others)


def test_a_letter_and_its_accent_are_the_letter_with_the_accent() -> None:
    for text in ("Bác sĩ đến", "Übung é", "각"):
        composed, decomposed = normalize("NFC", text), normalize("NFD", text)
        assert composed != decomposed
        assert text_key(composed) == text_key(decomposed)
        assert wording_key(f"{composed}!") == wording_key(decomposed)


def test_leak_check_names_the_dialogues() -> None:
    leaks = LeakCheck()
    leaks.add("d1", "train", ["a", "b"])
    leaks.add("d2", "train", ["a", "c"])
    leaks.add("d1", "test", ["x", "y"])
    with pytest.raises(DataError, match=r"1 dialogues are in two splits \(d1\)"):
        leaks.num_copies_across_splits()


def test_leak_check_counts_copies_across_splits() -> None:
    leaks = LeakCheck()
    leaks.add("d1", "train", ["hello", "you"])
    leaks.add("d2", "train", ["hello", "you"])  # in one split: no leak
    leaks.add("d3", "validation", ["Hello", "you"])
    leaks.add("d4", "test", ["hello, ", "you!"])
    leaks.add("d5", "test", ["hello", "there"])
    leaks.add("d6", "validation", ["good", "bye"])
    leaks.add("d7", "test", ["good", "bye"])
    assert leaks.num_copies_across_splits() == 3
    assert leaks.num_dialogues() == {"train": 2, "validation": 2, "test": 3}
