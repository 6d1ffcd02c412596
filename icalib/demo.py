"""The runs of `icalib demo`: small settings that learn the simulated corpus on two CPU cores in minutes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from icalib.core.component import with_settings
from icalib.methods.catalogue import load_method, presets
from icalib.pipeline.run import RunSettings

LABELLED = 0.05

_LEARNS = {
    "post_training": None,  # the replies are few and canned, so that the next utterances would give them away
    "bi_encoder_training.training.epochs": 6,
    "bi_encoder_training.training.patience": 6,
    "bi_encoder_training.training.learning_rate": 2e-4,
}
_TEACHES = {
    "regime.num_rounds": 1,
    "regime.pools_per_round": 600,
    "regime.rule.positive_threshold": 0.8,
}
_RUNS: Mapping[str, tuple[str | None, Mapping[str, Any]]] = MappingProxyType(
    {
        "bm25": (None, {}),
        "bi-encoder": (None, {}),
        "candidates-only": (None, {}),
        "bert": ("bi-encoder", _LEARNS),
        "tsst": ("bi-encoder", {**_LEARNS, **_TEACHES}),
    }
)
"""The preset and the settings of each method. The teacher of `tsst` is `bert`, which is trained once."""


def demo_settings(data: Path, seed: int) -> list[RunSettings]:
    """Return the settings of the demo's runs."""
    return [_settings(method, preset, changes, data, seed) for method, (preset, changes) in _RUNS.items()]


def _settings(method: str, preset: str | None, changes: Mapping[str, Any], data: Path, seed: int) -> RunSettings:
    made = load_method(method)
    named = presets(method)[preset] if preset else {}
    return RunSettings(
        method=method,
        data=data.resolve(),
        labelled=LABELLED,
        seed=seed,
        backbone=made.encoder.backbone,
        experiment="demo",
        settings=with_settings(made, {**named, **changes}),
    )
