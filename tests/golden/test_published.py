"""The papers' presets against a transcription of the papers that was made apart from them."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from icalib.core.component import ComponentConfig, short_name, with_settings
from icalib.methods.catalogue import load_method, method_names, presets

BLOCKS = yaml.safe_load(Path(__file__).with_name("published.yaml").read_text())
PUBLISHED = [
    (method, block["preset"], path, value)
    for block in BLOCKS
    for method in block["methods"]
    for path, value in block["values"].items()
]
OF_PAPERS = [(name, preset) for name in method_names() for preset in presets(name) if preset.startswith("paper-")]


def resolved(method: str, preset: str, path: str) -> Any:
    value: Any = with_settings(load_method(method), presets(method)[preset])
    for name in path.split("."):
        value = short_name(value.owner) if name == "target" else getattr(value, name)
    return value.owner if isinstance(value, ComponentConfig) else value


@pytest.mark.parametrize(("method", "preset", "path", "value"), PUBLISHED)
def test_a_preset_has_the_published_value(method: str, preset: str, path: str, value: Any) -> None:
    assert resolved(method, preset, path) == value


def test_every_paper_preset_is_transcribed() -> None:
    assert len(PUBLISHED) >= 150
    assert {(method, preset) for method, preset, _, _ in PUBLISHED} == set(OF_PAPERS)


@pytest.mark.parametrize(("method", "preset"), OF_PAPERS)
def test_a_batch_holds_as_many_of_the_longest_inputs_as_its_size_says(method: str, preset: str) -> None:
    made = with_settings(load_method(method), presets(method)[preset])
    longest = made.encoder.budget.max_context_tokens + made.encoder.budget.max_candidate_tokens + 3
    for training in made.regime.trainings():
        inputs = 1 + (training.train_negatives or 0) if method == "grn" else 1  # which reads a pool's candidates apart
        assert training.batch_size * inputs * longest <= training.max_tokens_per_batch
