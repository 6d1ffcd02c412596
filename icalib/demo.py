"""What `icalib demo` runs: small settings that learn the simulated corpus on two CPU cores in minutes."""

from __future__ import annotations

from pathlib import Path

from icalib.core.component import has_setting, with_settings
from icalib.distributed.run import RunSettings
from icalib.methods.catalogue import load_method

DEMO_METHODS = ("bm25", "bi-encoder", "bert", "tsst", "icast")

_SETTINGS = {
    "regime.num_rounds": 2,
    "regime.student.epochs": 2,
    "scoring.pools_per_shard": 16,
}


def demo_settings(method: str, data: Path, seed: int) -> RunSettings:
    """The settings of one of the demo's runs."""
    made = load_method(method)
    return RunSettings(
        method=method,
        data=data.resolve(),
        labelled=0.10,
        seed=seed,
        limit={"validation": 60, "test": 120},
        backbone=made.encoder.backbone,
        experiment="demo",
        settings=with_settings(made, {path: value for path, value in _SETTINGS.items() if has_setting(made, path)}),
    )
