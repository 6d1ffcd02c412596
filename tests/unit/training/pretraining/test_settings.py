from __future__ import annotations

from typing import Any

import pytest

from icalib.core.component import with_settings
from icalib.core.errors import SettingError
from icalib.methods.catalogue import load_method, presets


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("iart", {"post_training": "next-utterance"}, r"IART has no pre-trained backbone.*`post_training` to null"),
        ("icast", {"encoder": "iart", "post_training": None}, r"IART has no pre-trained backbone"),
        ("bert", {"pretraining": {}}, r"TransformerEncoder has a pre-trained backbone"),
        ("iart", {"encoder": "transformer-encoder"}, r"`pretraining` trains word vectors"),
        ("iart", {"similarity_start": "both"}, r"IART reads whole pools or has none.*together or none"),
        ("jm", {"similarity_start": "both"}, r"reads whole pools or has none.*together or none"),
        ("iart", {"uncertainty": "mc-dropout"}, r"IART has no dropout.*deterministic"),
    ],
)
def test_parts_that_do_not_fit_are_refused(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        with_settings(load_method(name), changes)


def test_iart_goes_with_other_regimes_and_without_either_model() -> None:
    for changes in (
        {"regime": "ensemble"},
        {"pretraining.word_vectors": None},
        {"pretraining.intent_classifier": None},
        {"pretraining": None},
    ):
        with_settings(load_method("iart"), changes)


def test_the_light_preset_has_a_sixteenth_of_the_similarities() -> None:
    light = with_settings(load_method("iart"), presets("iart")["light"])
    assert light.encoder.model_dump()["max_words"] == load_method("iart").encoder.model_dump()["max_words"] / 4
