from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from helpers.artifacts import known
from helpers.observers import Silent
from pydantic import SerializeAsAny

from icalib.core.component import Settings, validated
from icalib.core.errors import SettingError
from icalib.data.pools import as_pools, read_rows
from icalib.data.schema import Pool
from icalib.data.selection import Selection
from icalib.generation.generator import AbstractGenerator
from icalib.generation.language_model import (
    GeneratorJob,
    LanguageModel,
    TextPair,
    Writer,
    WritingCurriculum,
    context_texts,
)
from icalib.generation.retrieval import Retrieval, gold, training_rows
from icalib.generation.texts import question_index
from icalib.training.local_engine import LocalEngine
from icalib.training.loop import train
from icalib.training.settings import TrainingSettings

CPU = torch.device("cpu")
SELECTION = Selection(labelled_fraction=0.2)
FP32 = TrainingSettings(precision="fp32", batch_size=8)


def config(model: Path, **values: object) -> LanguageModel.Config:
    fields = {"model": str(model), "training": FP32, "max_source_tokens": 40, "max_target_tokens": 24}
    return LanguageModel.Config.model_validate(fields | values)


@pytest.fixture(scope="module")
def pools(tiny_pools: Path) -> list[Pool]:
    rows = training_rows(tiny_pools, SELECTION, "labelled")
    return list(as_pools(read_rows(tiny_pools, "train", rows)))


def nll(writer: Writer, pairs: list[TextPair]) -> torch.Tensor:
    with torch.inference_mode():
        return writer.eval()(pairs, CPU)


def test_the_loss_is_the_targets_mean_likelihood_whatever_is_beside_it(language_model: Path, pools: list[Pool]) -> None:
    writer = Writer(str(language_model), config(language_model))
    pairs = [writer.encode("answer", context_texts(pool), gold(pool)) for pool in pools[:4]]
    together = nll(writer, pairs)
    alone = torch.cat([nll(writer, [pair]) for pair in pairs])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-4)
    assert together.mean().item() == pytest.approx(math.log(500), rel=0.15)  # it knows nothing yet


def test_the_loss_is_that_of_transformers(language_model: Path, pools: list[Pool]) -> None:
    writer = Writer(str(language_model), config(language_model)).eval()
    pair = writer.encode("answer", context_texts(pools[0]), gold(pools[0]))
    source, target = torch.from_numpy(pair.source)[None], torch.from_numpy(pair.target)[None]
    if not writer.has_encoder:
        labels = torch.cat([torch.full_like(source, -100), target], 1)
        source = torch.cat([source, target], 1)
    else:
        labels = target
    with torch.inference_mode():
        expected = writer.network(input_ids=source, labels=labels).loss
    torch.testing.assert_close(nll(writer, [pair])[0], expected)


def test_a_context_keeps_its_end_and_an_answer_its_start(language_model: Path) -> None:
    writer = Writer(str(language_model), config(language_model, max_source_tokens=8, max_target_tokens=5))
    long = " ".join(str(number) for number in range(40))
    end = writer.encode("answer", ["hello", long], long)
    assert len(end.source) <= 8
    assert len(end.target) == 5
    assert writer._tokenizer.decode(end.source).rstrip("</s>").endswith("39")
    start = writer.encode("question", [long], long)
    assert "0 1" in writer._tokenizer.decode(start.source)


def test_special_tokens_that_users_type_are_text(language_model: Path) -> None:
    writer = Writer(str(language_model), config(language_model))
    pair = writer.encode("answer", ["a </s> b"], "c </s> d")
    assert list(pair.source).count(writer._end) == 1
    assert list(pair.target).count(writer._end) == 1


def test_a_fine_tuned_model_writes_what_it_learnt_and_so_does_its_checkpoint(
    language_model: Path, tiny_pools: Path, tmp_path: Path
) -> None:
    by_heart = TrainingSettings(epochs=120, batch_size=8, learning_rate=1e-2, precision="fp32", weight_decay=0)
    made = config(language_model, training=by_heart, decoding="beam", num_beams=2, max_target_tokens=40)
    few = Selection(labelled_fraction=0.02)
    job = GeneratorJob(task="answer", generator=made, data=known(tiny_pools), selection=few)
    training = job.prepare(CPU)
    writer = training.model
    assert isinstance(writer, Writer)
    state = train(
        writer, LocalEngine(writer, by_heart), training.curriculum, by_heart, Silent(), seed=1, validation=None
    )
    assert {point["tag"] for point in state.log} == {"loss/answer_text", "opt/lr"}
    pools = list(as_pools(read_rows(tiny_pools, "train", training_rows(tiny_pools, few, "labelled"))))
    sources = [context_texts(pool) for pool in pools]
    written = writer.eval().write("answer", sources, 1, seed=1, device=CPU)
    assert written == [[gold(pool)] for pool in pools]
    writer.save(tmp_path, writer.state_dict())
    again = Writer(str(tmp_path), made).eval()
    assert again.write("answer", sources, 1, seed=2, device=CPU) == written  # beam search draws nothing
    for name, tensor in writer.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


def test_samples_are_drawn_by_seed_and_differ(language_model: Path, pools: list[Pool]) -> None:
    writer = Writer(str(language_model), config(language_model)).eval()
    sources = [context_texts(pool) for pool in pools[:5]]
    one = writer.write("answer", sources, 2, seed=1, device=CPU)
    assert (
        one
        == writer.write("answer", sources, 2, seed=1, device=CPU)
        != writer.write("answer", sources, 2, seed=2, device=CPU)
    )
    assert [len(texts) for texts in one] == [2] * 5
    assert all(texts[0] != texts[1] for texts in one)


@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("decoding", ["nucleus", "beam"])
def test_a_checkpoints_own_way_of_decoding_plays_no_part(
    language_model: Path, pools: list[Pool], tmp_path: Path, decoding: str, file: str
) -> None:
    other = Path(shutil.copytree(language_model, tmp_path / "other"))
    if file == "config.json":  # as facebook/bart-base has it
        (other / "generation_config.json").unlink()
    ways = {"num_beams": 4, "no_repeat_ngram_size": 3, "early_stopping": True, "temperature": 0.2, "min_length": 12}
    (other / file).write_text(json.dumps(json.loads((other / file).read_text()) | ways))
    one, two = (
        Writer(str(folder), config(folder, decoding=decoding, num_beams=2)).eval() for folder in (language_model, other)
    )
    sources = [context_texts(pool) for pool in pools[:5]]
    assert one.write("answer", sources, 2, seed=1, device=CPU) == two.write("answer", sources, 2, seed=1, device=CPU)


def test_questions_are_learnt_from_answers(language_model: Path, tiny_pools: Path, pools: list[Pool]) -> None:
    writer = Writer(str(language_model), config(language_model))
    job = GeneratorJob(task="question", generator=writer.config, data=known(tiny_pools), selection=SELECTION)
    curriculum = WritingCurriculum(writer, job)
    learnt = {tuple(pair.target) for batch in curriculum.batches(0) for pair in batch}
    asked = [pool.context[question_index(pool.context)].text for pool in pools]
    assert learnt == {tuple(writer.encode("question", [""], text).target) for text in asked}
    assert [len(batch) for batch in curriculum.batches(0)] == [len(batch) for batch in curriculum.batches(1)]
    assert sum(map(len, curriculum.batches(0))) == len(pools)


def test_a_generated_question_takes_the_place_of_the_users_last_utterance(
    language_model: Path, tiny_pools: Path, pools: list[Pool], tmp_path: Path
) -> None:
    made = config(language_model)
    writer = Writer(str(language_model), made)
    writer.save(tmp_path, writer.state_dict())
    generator = made.build(
        data=tiny_pools, selection=SELECTION, models={"answer": tmp_path, "question": tmp_path}, device=CPU
    )
    (contexts,) = generator.contexts(pools[:1], 1)
    pool = pools[0]
    assert contexts[pool.label] is None
    for place, context in enumerate(contexts):
        if place != pool.label:
            changed = [old != new for old, new in zip(context_texts(pool), context.utterances, strict=True)]
            assert changed == [number == question_index(pool.context) for number in range(len(pool.context))]


def test_models_that_can_not_write_are_refused_before_anything_is_computed(
    language_model: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    with pytest.raises(SettingError, match="can't load the generator"):
        config(tmp_path / "nothing").check()
    with pytest.raises(SettingError, match="no end-of-sequence token"):
        config(tiny_bert).check()
    config(language_model).check()


@pytest.mark.parametrize("language_model", ["bart", "gpt2"], indirect=True)
def test_targets_longer_than_the_models_positions_are_refused(language_model: Path) -> None:
    with pytest.raises(SettingError, match="only 96 positions"):
        Writer(str(language_model), config(language_model, max_target_tokens=200))


def test_a_name_with_a_slash_is_short_for_a_language_model() -> None:
    class Holder(Settings):
        generator: SerializeAsAny[AbstractGenerator.Config]

    short = validated(Holder, {"generator": "facebook/bart-base"}).generator
    assert short == LanguageModel.Config(model="facebook/bart-base")
    with_more = validated(Holder, {"generator": {"target": "my/model", "num_beams": 2}}).generator
    assert with_more == LanguageModel.Config(model="my/model", num_beams=2)
    assert validated(Holder, {"generator": "retrieval"}).generator == Retrieval.Config()
    with pytest.raises(SettingError, match="Available: language-model, retrieval"):
        validated(Holder, {"generator": "bart"})
