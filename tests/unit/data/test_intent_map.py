from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.pool_folders import read_pools

from icalib.core.component import validated
from icalib.core.errors import DataError, SettingError
from icalib.data.pools import read_pool_set
from icalib.data.prepare import prepare
from icalib.data.preview import preview
from icalib.data.settings import PrepareSettings, mapped_intents
from icalib.data.simulate import simulate

BY_ROLE = {
    "_note": "of the people who labelled them",
    "user": {"question": "OQ", "more": ["OQ", "FD"], "thanks": None},
    "agent": {"question": "IR", "*": "O"},
}


MAP = validated(PrepareSettings, {"map_intents": BY_ROLE}).map_intents


@pytest.mark.parametrize(
    ("speaker", "labels", "expected"),
    [
        ("user", ["question"], ("OQ",)),
        ("agent", ["question"], ("IR",)),
        ("user", ["question", "more"], ("OQ", "FD")),  # each once
        ("user", ["thanks"], ()),
        ("user", [], ()),
        ("agent", ["whatever"], ("O",)),
    ],
)
def test_labels_get_the_names_of_their_role(speaker: Any, labels: list[str], expected: tuple[str, ...]) -> None:
    assert mapped_intents(MAP, speaker, labels) == expected


def test_a_label_without_a_name_is_an_error_that_names_it() -> None:
    with pytest.raises(DataError, match=r"the intent 'other' of an utterance by the user isn't in the intent map\."):
        mapped_intents(MAP, "user", ["other"])


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("[]", "map_intents: "),
        ('{"a": 3}', r"map_intents\.user\.a: .*found 3"),
        ('{"user": {"a": "X"}, "bot": {}}', r"map_intents\.bot.*'user' or 'agent'"),
        ("{", "can't be read as JSON"),
        ("[" * 100_000, r"can't be read as JSON \(maximum recursion depth"),
        (None, "can't be read"),
    ],
)
def test_a_wrong_file_is_a_setting_error(tmp_path: Path, content: str | None, expected: str) -> None:
    path = tmp_path / "map.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SettingError, match=expected):
        validated(PrepareSettings, {"map_intents": str(path)})


def test_pools_have_the_names_of_the_map(tmp_path: Path) -> None:
    simulate(tmp_path / "d.jsonl", num_dialogues=150, seed=1)
    prepare(tmp_path / "d.jsonl", tmp_path / "plain", PrepareSettings(num_candidates=4))
    labels = read_pool_set(tmp_path / "plain").intents
    (tmp_path / "map.json").write_text(json.dumps({label: "first" if label == labels[0] else None for label in labels}))
    settings = validated(PrepareSettings, {"num_candidates": 4, "map_intents": str(tmp_path / "map.json")})
    mapped = prepare(tmp_path / "d.jsonl", tmp_path / "mapped", settings)
    assert mapped.intents == ("first",)
    assert mapped.digest != read_pool_set(tmp_path / "plain").digest
    pairs = zip(*(read_pools(tmp_path / name, "train") for name in ("plain", "mapped")), strict=True)
    for plain, own in pairs:
        assert plain.candidates == own.candidates
        for before, after in zip(plain.context, own.context, strict=True):
            assert after.intents == (("first",) if labels[0] in before.intents else ())
    assert any("[first]" in line for line in preview(tmp_path / "d.jsonl", settings))
