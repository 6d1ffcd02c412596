"""Finished runs that rank by a bi-encoder: they predict, serve and are exported like those with a cross-encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.asgi import ask
from helpers.runs import TRAINING, Silent, run_context, small_settings
from helpers.tiny_models import random_batch
from huggingface_hub import ModelCard
from scipy.special import expit

import icalib
from icalib.core.errors import SettingError
from icalib.core.files import read_json
from icalib.core.run_folder import RunFolder
from icalib.data.pools import as_pools, iter_pools
from icalib.data.schema import Pool
from icalib.models.precision import autocast
from icalib.models.ranker import load_for_scoring
from icalib.pipeline.loaded_ranker import LoadedRanker
from icalib.pipeline.run import RunContext, run
from icalib.serving.application import create_app
from icalib.serving.limits import Limits
from icalib.serving.served_run import QuestionScorer, ServedRun

KEPT = {"regime.training": {**TRAINING, "epochs": 1, "head_learning_rate": 100.0}}
"""A head learning rate that no epoch survives."""


@pytest.fixture(scope="module")
def around(tmp_path_factory: pytest.TempPathFactory) -> RunContext:
    return run_context(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def runs(around: RunContext, tiny_pools: Path, tiny_bert: Path) -> dict[str, RunFolder]:
    unused = {"similarity_start": "separate"}  # as a comparison sets it for all methods
    methods: dict[str, dict[str, Any]] = {"bi-encoder": {}, "dual-encoder": unused, "bert": KEPT}
    return {name: run(small_settings(name, tiny_pools, tiny_bert, **made), around) for name, made in methods.items()}


@pytest.fixture(scope="module")
def pools(tiny_pools: Path, runs: dict[str, RunFolder]) -> list[Pool]:
    """Some test pools of the runs."""
    scored = set(runs["bi-encoder"].predictions("test")["pool_id"].to_pylist())
    return [pool for batch in iter_pools(tiny_pools, "test") for pool in as_pools(batch) if pool.pool_id in scored][:6]


def texts(pool: Pool) -> list[str]:
    return [turn.text for turn in pool.context]


@pytest.mark.parametrize("method", ["bi-encoder", "dual-encoder"])
def test_questions_get_the_probabilities_of_the_run(method: str, runs: dict[str, RunFolder], pools: list[Pool]) -> None:
    ranker = LoadedRanker.load(runs[method].path)
    table = runs[method].predictions("test").to_pandas()
    for pool in pools:
        own = table[table["pool_id"] == pool.pool_id].sort_values("candidate")
        found = ranker.predict_proba([(texts(pool), candidate) for candidate in pool.candidates])
        np.testing.assert_allclose(found, own["prob"], rtol=1e-5)
        assert ranker.rank(texts(pool), pool.candidates)[0].index == own["logit"].argmax()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_kept_start_is_scored_without_its_cross_encoder(precision: Any, runs: dict[str, RunFolder]) -> None:
    cpu = torch.device("cpu")
    whole, kept = (load_for_scoring(runs["bert"].checkpoint_path, precision, cpu) for _ in range(2))
    whole.skips_encoder = False
    batch = random_batch(whole)
    kept.encoder = None
    with torch.inference_mode(), autocast(cpu, precision):
        assert torch.equal(kept.answer_logits(batch), whole.answer_logits(batch))


def test_it_is_served(runs: dict[str, RunFolder], pools: list[Pool]) -> None:
    path, pool = runs["dual-encoder"].path, pools[0]
    scorer = QuestionScorer.load(path)

    async def score(asked: Pool) -> Any:
        return scorer.score([asked])[0]

    application = create_app(ServedRun.open(path), score, Limits(), None)
    answer = ask(application, "/rerank", {"query": "my card is lost", "texts": list(pool.candidates)}).value
    expected = LoadedRanker.load(path).rank(["my card is lost"], pool.candidates)
    assert [item["index"] for item in answer] == [one.index for one in expected]
    np.testing.assert_allclose([item["score"] for item in answer], [one.prob for one in expected], rtol=1e-6)


@pytest.mark.parametrize("method", ["bi-encoder", "dual-encoder", "bert"])
def test_sentence_transformers_reads_an_exported_bi_encoder(
    method: str, runs: dict[str, RunFolder], pools: list[Pool], tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer

    assert runs["bert"].kept_start
    folder = icalib.export(runs[method].path, tmp_path / "model", format="sentence-transformer", license="mit")
    model, ranker = SentenceTransformer(str(folder), device="cpu"), LoadedRanker.load(runs[method].path)
    map_ = read_json(folder / "icalib_export.json")["calibration"]
    for pool in pools:
        pairs = icalib.pair_texts(folder, texts(pool), pool.candidates)
        vectors = model.encode([pairs[0][0], *(candidate for _, candidate in pairs)], convert_to_tensor=True)
        cosines = model.similarity(vectors[:1], vectors[1:])[0].numpy().astype(np.float64)
        expected = ranker.predict_proba([(texts(pool), candidate) for candidate in pool.candidates])
        np.testing.assert_allclose(expit(map_["slope"] * cosines + map_["offset"]), expected, atol=1e-4)
    card = ModelCard.load(folder / "README.md")
    assert (card.data.pipeline_tag, card.data.license) == ("sentence-similarity", "mit")
    usage = card.text.split("```python\n")[1].split("```")[0].replace('"model"', repr(str(folder)))
    names: dict[str, Any] = {}
    exec(usage.replace("torch.sigmoid", "probabilities = torch.sigmoid"), names)  # what the card says works
    assert torch.is_tensor(names["probabilities"])
    assert names["probabilities"].shape == (2,)


def test_a_student_that_keeps_its_start_is_its_teacher(
    around: RunContext, tiny_pools: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    listener = Silent()
    changes = {"regime.student": KEPT["regime.training"]}
    settings = small_settings("tsst", tiny_pools, tiny_bert, **changes)
    kept = run(settings, run_context(around.runs, listener))
    assert "round-1/student: no epoch was better on validation than the teacher, which is kept" in listener.messages
    assert not kept.kept_start  # its teacher has learnt
    with pytest.raises(SettingError, match="--distil"):
        icalib.export(kept.path, tmp_path / "model", format="cross-encoder")


def test_a_cross_encoder_that_has_learnt_is_no_bi_encoder(
    around: RunContext, tiny_pools: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    learnt = run(small_settings("bert", tiny_pools, tiny_bert).model_copy(update={"experiment": "learnt"}), around)
    with pytest.raises(SettingError, match="its cross-encoder has learnt from labels"):
        icalib.export(learnt.path, tmp_path / "model", format="sentence-transformer")
