"""The runs of `icalib demo`: small settings that learn the simulated corpus on two CPU cores in minutes."""

from __future__ import annotations

from pathlib import Path

from icalib.core.component import has_setting, with_settings
from icalib.methods.catalogue import load_method, presets
from icalib.pipeline.run import RunSettings

DEMO_METHODS = ("bm25", "bi-encoder", "candidates-only", "bert", "tsst", "icast")

_TRAINING = {
    "epochs": 6,
    "patience": 6,
    "learning_rate": 2e-4,
    "head_learning_rate": 1e-3,
    "batch_size": 8,
    "train_negatives": 2,
}
_SETTINGS = {
    "encoder.num_layers": 2,
    "encoder.frozen_layers": 0,
    # Which reply is right depends on intents here, not on similarity, so that contrastive training learns little.
    "similarity_start": "together",
    "post_training": "next-utterance",
    "post_training.max_windows": 600,
    "post_training.training.learning_rate": 1e-4,
    "regime.training": _TRAINING,
    "regime.teacher": _TRAINING,
    "regime.student": {**_TRAINING, "epochs": 2},
    "regime.num_rounds": 1,
    "regime.pools_per_round": 60,
    "scoring.pools_per_shard": 10,
}
_UNTRAINED = ("bm25", "bi-encoder", "candidates-only")


def demo_settings(method: str, data: Path, seed: int) -> RunSettings:
    """The settings of one of the demo's runs."""
    made = load_method(method)
    changes = {} if method in _UNTRAINED else {k: v for k, v in _SETTINGS.items() if has_setting(made, k)}
    changes |= presets(method).get("precise", {})
    return RunSettings(
        method=method,
        data=data.resolve(),
        labelled=0.10,
        seed=seed,
        limit={"validation": 100, "test": 100},
        backbone=made.encoder.backbone,
        experiment="demo",
        settings=with_settings(made, changes),
    )
