from __future__ import annotations

from typing import Any

import pytest

from icalib.core.component import with_settings
from icalib.core.errors import SettingError
from icalib.methods.catalogue import load_method


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("iart", {"post_training": "utterance-order"}, "IART has no pre-trained backbone"),
        ("icast", {"encoder": "iart", "post_training": None}, "IART has no pre-trained backbone"),
        ("bert", {"pretraining": {}}, "TransformerEncoder has a pre-trained backbone"),
        ("iart", {"encoder": "transformer-encoder"}, "`pretraining` trains word vectors"),
        ("jm", {"similarity": {}}, "gives probabilities to whole pools.*Set them to null"),
        ("iart", {"similarity": {}}, "IART has no pre-trained backbone, which they need"),
        ("iart", {"uncertainty": "mc-dropout"}, "IART has no dropout"),
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
