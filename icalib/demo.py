"""The runs of `icalib demo`: sums of parts that learn the simulated corpus on two CPU cores in minutes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from icalib.core.component import with_settings
from icalib.data.schema import Split
from icalib.methods.catalogue import load_method, presets
from icalib.pipeline.config import RunConfig

NUM_DIALOGUES = 1000
LABELLED = 0.05
POOLS: dict[str, Any] = {"labelled": LABELLED, "num_candidates": 5, "context_turns": 3, "negative_sampler": "random"}
"""Small pools of short contexts. The neighbours of so few canned replies are so alike that the right one stands out."""
LIMIT: Mapping[Split, int] = MappingProxyType({"validation": 150, "test": 300})


class Row(NamedTuple):
    """One run of the demo."""

    what: str
    """What it is, for people."""
    changes: Mapping[str, Any] = {}
    """Settings by dotted name."""
    preset: str | None = None
    """Applied before `changes`."""


_PARTS = {
    # A cross-encoder would read every pair in both views and five passes, which takes minutes.
    "cross": False,
    # The desk's replies are few and canned, so that the next utterances of unlabelled dialogues would give them away.
    "domain_pretraining": None,
    # Wrong candidates are random here, so those of the other pools of a batch do as well.
    "similarity.training.train_negatives": 2,
}
_SELF_TRAINING = {**_PARTS, "regime.num_rounds": 1, "regime.pools_per_round": 300}
# Each utterance of the desk has one intent, and regressions predict it well.
_INTENTS = {"intent.training": None, "uncertainty.num_passes": 3, "regime.rule.intents.choice": "argmax"}

ROWS: Mapping[str, Row] = MappingProxyType(
    {
        "bm25": Row("words that context and candidate share; no training"),
        "bi-encoder": Row("MiniLM as it was downloaded reads context and candidate apart; no training"),
        "candidates-only": Row("sees no context, so it must be near chance"),
        "bert": Row("MiniLM reads them apart too (the similarity part), trained on the labelled pools", _PARTS),
        "tsst": Row("a student of bert, trained on bert's pseudo labels of other pools too", _SELF_TRAINING, "precise"),
        "icast-teacher": Row(
            "bert and the intent part, which reads predicted intents (3 dropout passes)", _PARTS | _INTENTS
        ),
        "icast": Row(
            "a student of icast-teacher, trained on its pseudo labels of other pools too",
            _SELF_TRAINING | _INTENTS,
            "precise",
        ),
    }
)
"""The runs by method. The teacher of `tsst` is `bert`; that of `icast` is `icast-teacher`."""


def demo_settings(data: Path, seed: int) -> list[RunConfig]:
    """Return the settings of the demo's runs."""
    return [_settings(method, row, data, seed) for method, row in ROWS.items()]


def _settings(method: str, row: Row, data: Path, seed: int) -> RunConfig:
    made = load_method(method)
    named = presets(method)[row.preset] if row.preset else {}
    return RunConfig(
        method=method,
        data=data.resolve(),
        labelled=LABELLED,
        seed=seed,
        limit=dict(LIMIT),
        backbone=made.encoder.backbone,
        experiment="demo",
        settings=with_settings(made, {**named, **row.changes}),
    )
