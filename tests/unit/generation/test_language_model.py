from __future__ import annotations

from pathlib import Path

import pytest
import torch
from helpers.artifacts import known
from helpers.observers import Silent
from helpers.tiny_language_models import Kind, write_tiny_language_model
from helpers.tiny_models import pool_texts

from icalib.core.errors import SettingError
from icalib.data.pools import as_pools, read_rows
from icalib.data.schema import Pool
from icalib.data.selection import Selection
from icalib.generation.language_model import (
    GeneratorJob,
    LanguageModel,
    TextPair,
    Writer,
    WritingCurriculum,
    context_texts,
)
from icalib.generation.retrieval import gold, question_index, training_rows
from icalib.training.local_engine import LocalEngine
from icalib.training.loop import train
from icalib.training.settings import TrainingSettings

CPU = torch.device("cpu")
SELECTION = Selection(labelled_fraction=0.2)
FP32 = TrainingSettings(precision="fp32", batch_size=8)


def config(model: Path, **values: object) -> LanguageModel.Config:
    fields = {"model": str(model), "training": FP32, "max_source_tokens": 40, "max_target_tokens": 24}
    return LanguageModel.Config.model_validate(fields | values)


@pytest.fixture(scope="module", params=["bart", "t5", "m2m_100"])
def language_model(request: pytest.FixtureRequest, tiny_pools: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny random BART, T5 or M2M100."""
    kind: Kind = request.param
    return write_tiny_language_model(tmp_path_factory.mktemp(kind), kind, pool_texts(tiny_pools))


@pytest.fixture(scope="module")
def pools(tiny_pools: Path) -> list[Pool]:
    rows = training_rows(tiny_pools, SELECTION, "labelled")
    return list(as_pools(read_rows(tiny_pools, "train", rows)))


def nll(writer: Writer, pairs: list[TextPair]) -> torch.Tensor:
    with torch.inference_mode():
        return writer.eval()(pairs, CPU)


def test_the_loss_is_that_of_transformers_whatever_is_beside_it(language_model: Path, pools: list[Pool]) -> None:
    writer = Writer(str(language_model), config(language_model))
    pairs = [writer.encode("answer", context_texts(pool), gold(pool)) for pool in pools[:3]]
    together = nll(writer, pairs)
    for pair, found in zip(pairs, together, strict=True):
        source, labels = torch.from_numpy(pair.source)[None], torch.from_numpy(pair.target)[None]
        with torch.inference_mode():
            expected = writer.network(input_ids=source, labels=labels).loss
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_a_context_keeps_its_end_and_an_answer_its_start(language_model: Path) -> None:
    writer = Writer(str(language_model), config(language_model, max_source_tokens=8, max_target_tokens=5))
    long = " ".join(str(number) for number in range(40))
    end = writer.encode("answer", ["hello", long], long)
    assert len(end.source) <= 8
    assert len(end.target) == 5
    assert writer._tokenizer.decode(end.source).rstrip("</s>").endswith("39")
    start = writer.encode("question", [long], long)
    assert "0 1" in writer._tokenizer.decode(start.source)


def test_a_fine_tuned_model_writes_what_it_learnt_and_so_does_its_checkpoint(
    language_model: Path, tiny_pools: Path, tmp_path: Path
) -> None:
    by_heart = TrainingSettings(epochs=80, batch_size=8, learning_rate=1e-2, precision="fp32", weight_decay=0)
    made = config(language_model, training=by_heart, top_p=1e-6, max_target_tokens=40)
    few = Selection(labelled_fraction=0.01)
    job = GeneratorJob(task="answer", generator=made, data=known(tiny_pools), selection=few)
    training = job.prepare(CPU)
    writer = training.model
    assert isinstance(writer, Writer)
    engine = LocalEngine(writer, by_heart)
    state = train(writer, engine, training.curriculum, by_heart, Silent(), seed=1, validation=None)
    assert {point["tag"] for point in state.log} == {"loss/answer_text", "opt/lr"}
    pools = list(as_pools(read_rows(tiny_pools, "train", training_rows(tiny_pools, few, "labelled"))))
    sources = [context_texts(pool) for pool in pools]
    written = writer.eval().write("answer", sources, 1, seed=1, device=CPU)
    assert written == [[gold(pool)] for pool in pools]
    writer.save(tmp_path, writer.state_dict())
    again = Writer(str(tmp_path), made).eval()
    assert again.write("answer", sources, 1, seed=2, device=CPU) == written  # of one token there is nothing to draw
    for name, tensor in writer.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


@pytest.mark.parametrize("language_model", ["bart"], indirect=True)
def test_questions_are_learnt_from_answers(language_model: Path, tiny_pools: Path, pools: list[Pool]) -> None:
    writer = Writer(str(language_model), config(language_model))
    job = GeneratorJob(task="question", generator=writer.config, data=known(tiny_pools), selection=SELECTION)
    batches = WritingCurriculum(writer, job).batches(0)
    asked = [pool.context[question_index(pool.context)].text for pool in pools]
    learnt = {tuple(pair.target) for batch in batches for pair in batch}
    assert learnt == {tuple(writer.encode("question", [""], text).target) for text in asked}
    assert sum(map(len, batches)) == len(pools)


@pytest.mark.parametrize("language_model", ["bart"], indirect=True)
def test_a_generated_question_takes_the_place_of_the_users_last_utterance(
    language_model: Path, tiny_pools: Path, pools: list[Pool]
) -> None:
    models = {"answer": language_model, "question": language_model}
    generator = config(language_model).build(data=tiny_pools, selection=SELECTION, models=models, device=CPU)
    (contexts,) = generator.contexts(pools[:1], 1)
    pool = pools[0]
    assert contexts[pool.label] == ()
    for place, context in enumerate(contexts):
        if place != pool.label:
            changed = [old != new for old, new in zip(context_texts(pool), context, strict=True)]
            assert changed == [number == question_index(pool.context) for number in range(len(pool.context))]


@pytest.mark.parametrize("language_model", ["bart"], indirect=True)
def test_models_that_can_not_write_are_refused_before_anything_is_computed(
    language_model: Path, tiny_bert: Path
) -> None:
    config(language_model).check()
    with pytest.raises(SettingError, match="not a sequence-to-sequence language model"):
        config(tiny_bert).check()
    with pytest.raises(SettingError, match="only 96 positions"):
        config(language_model, max_target_tokens=200).check()


@pytest.mark.parametrize("language_model", ["bart"], indirect=True)
def test_a_wrong_candidate_is_no_generated_answer(
    language_model: Path, tiny_pools: Path, pools: list[Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be taught as wrong and as right at once."""
    pool = pools[0]
    wrong = next(text for number, text in enumerate(pool.candidates) if number not in pool.right)
    monkeypatch.setattr(Writer, "write", lambda *_, **__: [[wrong.upper(), "Another text."]])
    models = {"answer": language_model}
    generator = config(language_model).build(data=tiny_pools, selection=SELECTION, models=models, device=CPU)
    assert generator.grey_answers([pool], 2, 1) == generator.right_answers([pool], 1) == [["Another text."]]
