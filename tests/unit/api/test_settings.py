"""Settings that several methods share."""

from __future__ import annotations

from typing import Any

import pytest

from icalib.api.options import RunTemplate
from icalib.api.settings import check_settings, composed, preset_settings
from icalib.core.errors import SettingError


def test_the_plain_bi_encoder_stays_plain_beside_methods_with_another_domain_pretraining() -> None:
    settings = {"domain_pretraining": "utterance-order", "domain_pretraining.max_windows": 30, "encoder.num_layers": 1}
    plain = composed("bi-encoder", None, settings, lenient=True)
    assert plain.domain_pretraining is None
    assert plain.encoder.num_layers == 1
    assert composed("bert", None, settings, lenient=True).domain_pretraining.max_windows == 30


def test_contrastive_settings_reach_the_bi_encoder_that_is_pretrained() -> None:
    settings = {"domain_pretraining.max_windows": 30}
    assert composed("dual-encoder", None, settings, lenient=True).domain_pretraining.max_windows == 30


@pytest.mark.parametrize("method", ["bi-encoder", "dual-encoder"])
def test_a_domain_pretraining_without_a_bi_encoder_is_refused_where_nothing_is_trained(method: str) -> None:
    with pytest.raises(SettingError, match=r"UtteranceOrder.*contrastive or null"):
        composed(method, None, {"domain_pretraining": "utterance-order"})


def test_a_papers_preset_concerns_every_trained_row() -> None:
    """Else rows with other settings would stand under the paper's name."""
    assert preset_settings("bm25", "paper-gpf", lenient=True) == {}  # nothing is trained
    assert preset_settings("gpf-bert", "paper-gpf", lenient=True) == preset_settings("gpf-bert", "paper")
    for method, preset in (("icast", "paper-gpf"), ("bert", "paper"), ("icast-gpf", "paper-icast")):
        with pytest.raises(SettingError, match=f"no preset `{preset}`"):
            preset_settings(method, preset, lenient=True)
    assert preset_settings("bert", "light", lenient=True) == {}  # what isn't a paper's is for those that have it


def test_the_earlier_name_of_a_setting_is_accepted() -> None:
    given: Any = {"settings": {"post_training.max_windows": 9, "pretraining": None}}
    assert RunTemplate.of(given, "pools").settings == {"domain_pretraining.max_windows": 9, "pretraining": None}


@pytest.mark.parametrize(
    ("method", "preset", "path", "why"),
    [
        ("tsst", None, "intent.ridge", "it has no intents"),
        ("bm25", None, "uncertainty", "it is not trained"),
        ("icast", "bi-encoder", "regime.teacher.epochs", "it has no cross-encoder"),
        ("bert", "bi-encoder", "head", "it has no cross-encoder"),
    ],
)
def test_a_setting_without_effect_is_refused(method: str, preset: str | None, path: str, why: str) -> None:
    settings = {path: {"uncertainty": "mc-dropout", "head": "linear-head"}.get(path, 1)}
    with pytest.raises(SettingError, match=f"`{path}` has no effect on `{method}`, as {why}"):
        composed(method, preset, settings)
    with pytest.raises(SettingError, match="none of these methods reads such a setting"):
        check_settings(settings, [composed(method, preset, settings, lenient=True)])


def test_settings_that_are_read_beside_parts_that_are_not_are_accepted() -> None:
    composed("icast", "bi-encoder", {"regime.student.selection_metric": "MAP", "intent.ridge": 0.1})
    composed("bert", "bi-encoder", {"intent": None, "scoring.precision": "fp32"})
    composed("icast", "bi-encoder", {"cross": True, "regime.teacher.epochs": 1})
