from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.artifacts import known
from helpers.observers import Silent
from helpers.tiny_models import BUDGET
from helpers.train_jobs import job_of

from icalib.data.encoding import TokenStore
from icalib.data.selection import Selection
from icalib.encoders.iart import IART
from icalib.metrics.catalogue import metric_tag
from icalib.training.local_engine import LocalEngine
from icalib.training.loop import LoopState, train
from icalib.training.pretraining.intent_classifier import (
    IntentClassifierJob,
    IntentLearner,
    IntentLearning,
    labelled_utterances,
)
from icalib.training.pretraining.word_vectors import SkipGram

CPU = torch.device("cpu")
pytestmark = pytest.mark.usefixtures("gathers_as_workers_do")


@pytest.fixture
def encoder(tiny_bert: Path) -> IART.Config:
    return IART.Config(backbone=str(tiny_bert), budget=BUDGET, embedding_size=50, intent_filters=50, max_words=20)


@pytest.fixture
def words(encoder: IART.Config, tiny_bert: Path, tmp_path: Path) -> Path:
    """A checkpoint of word vectors."""
    model = SkipGram(encoder.build(num_intents=0).vocabulary, encoder.embedding_size)
    torch.nn.init.normal_(model.encoder["embedding"].weight)  # type: ignore[arg-type]
    model.save(tmp_path / "words", model.state_dict())
    return tmp_path / "words"


def job(encoder: IART.Config, tokens: Path, num_intents: int, **fields: Any) -> IntentClassifierJob:
    given = {"settings": IntentLearning(), "encoder": encoder, "num_intents": num_intents, "start": None, **fields}
    return job_of(IntentClassifierJob, Path(), tokens, **given)


def learnt(wanted: IntentClassifierJob) -> tuple[IntentLearner, LoopState]:
    torch.manual_seed(0)
    made = wanted.build(CPU)
    model, curriculum, validation = made.model, made.curriculum, made.validation
    assert isinstance(model, IntentLearner)
    settings = wanted.loop_settings.model_copy(update={"precision": "fp32"})
    state = train(model, LocalEngine(model, settings), curriculum, settings, Silent(), seed=0, validation=validation)
    return model, state


def test_intents_are_learnt_and_the_word_vectors_pass_through(
    encoder: IART.Config, tokens: Path, intents: tuple[str, ...], words: Path
) -> None:
    wanted = job(encoder, tokens, len(intents), start=known(words))
    before = wanted.build(CPU).model.state_dict()
    torch.testing.assert_close(before["encoder.intent_classifier.embedding.weight"], before["encoder.embedding.weight"])
    model, state = learnt(wanted)
    figures = [point["value"] for point in state.log if point["tag"] == metric_tag("F1")]
    assert figures[-1] > 0.6  # no intent is above the threshold at the start
    after = model.state_dict()
    assert torch.equal(after["encoder.embedding.weight"], before["encoder.embedding.weight"])
    assert not torch.equal(
        after["encoder.intent_classifier.embedding.weight"], before["encoder.intent_classifier.embedding.weight"]
    )


def test_only_labelled_pools_teach(tokens: Path) -> None:
    tenth = Selection(labelled_fraction=0.1)
    few, all_of_them = (
        labelled_utterances(tokens / "train.arrow", "train", some) for some in (tenth, Selection(labelled_fraction=1.0))
    )
    store = TokenStore(tokens / "train.arrow")
    rows = tenth.rows("train", "labelled", store.column("label_order"))
    seen = {ids.tobytes() for pool in store.pools(rows) for ids in pool.context}
    assert {text.ids.tobytes() for text in few} <= seen
    assert all(text.intents for text in few)
    assert len({(text.ids.tobytes(), text.intents) for text in few}) == len(few) < len(all_of_them)
