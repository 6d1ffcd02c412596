"""IART and SAM in whole runs: the stages that they start from, and what is shared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.observers import Interrupted
from helpers.runs import Silent, run_context, small_settings

from icalib.core.run_folder import RunFolder
from icalib.encoders.iart import IART
from icalib.models.checkpoint import read_weights
from icalib.models.ranker import load_ranker
from icalib.pipeline.run import run
from icalib.stages.executor import LocalExecutor
from icalib.stages.stages import Stages
from icalib.training.job import TrainingJob

SMALL: dict[str, Any] = {
    "encoder.embedding_size": 16,
    "encoder.num_blocks": 1,
    "encoder.intent_filters": 4,
    "pretraining.word_vectors.training.epochs": 1,
    "pretraining.intent_classifier.training.epochs": 2,
}


@pytest.fixture(scope="module")
def iart(runs: Path, tiny_pools: Path, tiny_bert: Path) -> RunFolder:
    return run(small_settings("iart", tiny_pools, tiny_bert, **SMALL), run_context(runs, Silent()))


def test_iart_starts_from_word_vectors_and_an_intent_classifier(iart: RunFolder) -> None:
    stages = {stage["name"]: Path(stage["path"]) for stage in iart.stages}
    assert list(stages) == [
        "tokens", "word-vectors", "intent-classifier", "teacher", "validation/scores-cross", "validation/scores",
        "test/scores-cross", "test/scores",
    ]  # fmt: skip
    ranker = load_ranker(iart.checkpoint_path / "cross")
    assert isinstance(ranker.encoder, IART)
    words = read_weights(stages["word-vectors"] / "checkpoint")["encoder.embedding.weight"]
    classifier = read_weights(stages["intent-classifier"] / "checkpoint")
    assert torch.equal(classifier["encoder.embedding.weight"], words)
    own = ranker.state_dict()
    frozen = [name for name in own if name.startswith("encoder.intent_classifier.")]
    assert frozen
    assert all(torch.equal(own[name], classifier[name]) for name in frozen)  # ranking leaves it as it is
    assert not torch.equal(own["encoder.embedding.weight"], words)
    assert ranker.encoder.intent_attention.weight.abs().sum() > 0
    assert np.isfinite(iart.predictions("test")["logit"].to_numpy()).all()


def test_other_seeds_share_both_and_other_fractions_the_word_vectors(
    iart: RunFolder, runs: Path, tiny_pools: Path, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: LocalExecutor, job: TrainingJob, *_: Any) -> None:
        raise Interrupted(type(job).__name__)

    monkeypatch.setattr(LocalExecutor, "train", refuse)
    settings = small_settings("iart", tiny_pools, tiny_bert, **SMALL)
    for change, first in (({"seed": 2}, "CrossEncoderJob"), ({"labelled": 0.2}, "IntentClassifierJob")):
        with pytest.raises(Interrupted, match=first):
            run(settings.model_copy(update=change), run_context(runs, Silent()))


def test_without_labelled_intents_the_run_says_so_and_weighs_turns_alike(
    iart: RunFolder, runs: Path, tiny_pools: Path, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stages, "_has_labelled_intents", lambda _: False)
    listener = Silent()
    settings = small_settings("iart", tiny_pools, tiny_bert, **SMALL, experiment="no-intents")
    finished = run(settings, run_context(runs, listener))
    assert any("all turns of a context have the same weight" in message for message in listener.messages)
    assert "intent-classifier" not in listener.stages
    encoder = load_ranker(finished.checkpoint_path / "cross").encoder
    assert encoder.intent_classifier is None
    assert encoder.intent_attention.weight is None
