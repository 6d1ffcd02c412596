"""The runs of `icalib demo`: cross-encoders that learn the simulated corpus on two CPU cores in minutes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from icalib.api.pools import PoolKeywords
from icalib.core.component import with_settings
from icalib.data.schema import Split
from icalib.methods.catalogue import load_method, presets
from icalib.pipeline.run import RunSettings

NUM_DIALOGUES = 1000
LABELLED = 0.05
POOLS: PoolKeywords = {"labelled": LABELLED, "num_candidates": 5, "context_turns": 3}
"""Small pools of short contexts, since a cross-encoder reads the context once for each candidate."""
LIMIT: Mapping[Split, int] = MappingProxyType({"validation": 60, "test": 100})
"""With dropout passes over two views, each of these pools is read 50 times."""

_NUM_LAYERS = 3


class Row(NamedTuple):
    """One run of the demo."""

    what: str
    """What it is, for people."""
    changes: Mapping[str, Any] = {}
    """Settings by dotted name."""
    preset: str | None = None
    """Applied before `changes`."""


_CROSS_ENCODER = {
    "encoder.num_layers": _NUM_LAYERS,
    # The logit begins with the similarity of context and candidate as the cross-encoder itself reads them: with the
    # papers' plain head it learns nothing in so few updates.
    "similarity_start": "together",
    # The desk's replies are few and canned, so that the next utterances of unlabelled dialogues would give them away.
    "post_training": None,
}
_TEACHER = {"epochs": 5, "patience": 5, "learning_rate": 3e-4, "selection_metric": "MAP"}
_STUDENT = _TEACHER | {"epochs": 2, "learning_rate": 2e-4}
_SUPERVISED = _CROSS_ENCODER | {f"regime.training.{name}": value for name, value in _TEACHER.items()}
_SELF_TRAINING = {
    **_CROSS_ENCODER,
    "regime.num_rounds": 1,
    "regime.pools_per_round": 200,
    "regime.rule.positive_threshold": 0.8,
    **{f"regime.teacher.{name}": value for name, value in _TEACHER.items()},
    **{f"regime.student.{name}": value for name, value in _STUDENT.items()},
}
# Each utterance of the desk has one intent, and half of the pairs are read with it: those that gain most.
_INTENTS = {"regime.rule.intents.choice": "argmax", "regime.rule.scale": "quantile", "regime.rule.gain_threshold": 0.5}

ROWS: Mapping[str, Row] = MappingProxyType(
    {
        "bm25": Row("words that context and candidate share; no training"),
        "bi-encoder": Row("MiniLM as it was downloaded reads context and candidate apart; no training"),
        "candidates-only": Row("sees no context, so it must be near chance"),
        "bert": Row(f"a cross-encoder ({_NUM_LAYERS} layers of MiniLM), trained on the labelled pools", _SUPERVISED),
        "tsst": Row("a student of bert, trained on bert's pseudo labels of other pools too", _SELF_TRAINING, "precise"),
        "icast-teacher": Row(
            "bert that also predicts intents, and reads them where that raises its confidence (5 dropout passes)",
            _SUPERVISED | _INTENTS,
        ),
        "icast": Row(
            "a student of icast-teacher, trained on its pseudo labels of other pools too",
            _SELF_TRAINING | {"regime.rule.intents.choice": "argmax"},
            "precise",
        ),
    }
)
"""The runs by method. The teacher of `tsst` is `bert`; that of `icast` is trained as `icast-teacher`, and its epoch is
chosen with the published λ."""


def demo_settings(data: Path, seed: int) -> list[RunSettings]:
    """Return the settings of the demo's runs."""
    return [_settings(method, row, data, seed) for method, row in ROWS.items()]


def _settings(method: str, row: Row, data: Path, seed: int) -> RunSettings:
    made = load_method(method)
    named = presets(method)[row.preset] if row.preset else {}
    return RunSettings(
        method=method,
        data=data.resolve(),
        labelled=LABELLED,
        seed=seed,
        limit=dict(LIMIT),
        backbone=made.encoder.backbone,
        experiment="demo",
        settings=with_settings(made, {**named, **row.changes}),
    )
