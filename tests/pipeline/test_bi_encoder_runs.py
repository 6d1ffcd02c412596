"""Finished runs that rank by a bi-encoder: they predict, serve and are exported like those with a cross-encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.pool_folders import read_pools
from helpers.runs import TRAINING, small_settings
from huggingface_hub import ModelCard
from scipy.special import expit, logit

import icalib
from icalib.core.files import read_json
from icalib.core.run_folder import RunFolder
from icalib.data.schema import Pool
from icalib.pipeline.loaded_ranker import LoadedRanker
from icalib.pipeline.run import RunContext, run
from icalib.pipeline.why import why
from icalib.reports.why import cells, columns

ALONE = {
    "similarity": {"training": {**TRAINING, "selection_metric": "MAP", "batch_size": 4}},
    "cross": False,
    "calibration": "platt",
}
METHODS: dict[str, dict[str, Any]] = {"bi-encoder": {}, "dual-encoder": {}, "bert": ALONE}


@pytest.fixture(scope="module")
def made(around: RunContext, tiny_pools: Path, tiny_bert: Path) -> dict[str, RunFolder]:
    return {name: run(small_settings(name, tiny_pools, tiny_bert, **own), around) for name, own in METHODS.items()}


@pytest.fixture(scope="module")
def pools(tiny_pools: Path, made: dict[str, RunFolder]) -> list[Pool]:
    """Some test pools of the runs."""
    scored = set(made["bi-encoder"].predictions("test")["pool_id"].to_pylist())
    return [pool for pool in read_pools(tiny_pools, "test") if pool.pool_id in scored][:6]


def texts(pool: Pool) -> list[str]:
    return [turn.text for turn in pool.context]


@pytest.mark.parametrize("method", METHODS)
def test_questions_get_the_probabilities_of_the_run(method: str, made: dict[str, RunFolder], pools: list[Pool]) -> None:
    ranker = LoadedRanker.load(made[method].path)
    table = made[method].predictions("test").to_pandas()
    for pool in pools:
        own = table[table["pool_id"] == pool.pool_id].sort_values("candidate")
        ranked = ranker.rank(texts(pool), pool.candidates)
        found = [one.prob for one in sorted(ranked, key=lambda one: one.index)]
        np.testing.assert_allclose(found, own["prob"], rtol=1e-5)
        assert ranked[0].index == own["logit"].argmax()


@pytest.mark.parametrize("method", METHODS)
def test_why_shows_the_logits_of_the_run_and_all_that_they_are_the_sum_of(
    method: str, made: dict[str, RunFolder], pools: list[Pool]
) -> None:
    table = made[method].predictions("test").to_pandas()
    for pool in pools:
        logits = table[table["pool_id"] == pool.pool_id].set_index("candidate")["logit"]
        (reading,) = why(made[method].path, pool.pool_id).readings
        headings = columns(reading)
        for one in reading.candidates:
            assert one.logit == pytest.approx(logits[one.index])
            shares = [float(cell) for cell in cells(reading, one)[: headings.index("logit")]]
            assert not shares or sum(shares) == pytest.approx(one.logit, abs=0.011)  # two decimals each


@pytest.mark.parametrize("method", METHODS)
def test_sentence_transformers_reads_an_exported_bi_encoder(
    method: str, made: dict[str, RunFolder], pools: list[Pool], tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer

    folder = icalib.export(made[method].path, tmp_path / "model", format="sentence-transformer", license="mit")
    model, ranker = SentenceTransformer(str(folder), device="cpu"), LoadedRanker.load(made[method].path)
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


def test_another_calibration_is_of_the_logit_and_the_export_applies_it_to_the_cosine(
    made: dict[str, RunFolder], pools: list[Pool], tmp_path: Path
) -> None:
    run, ranker = made["bi-encoder"].path, LoadedRanker.load(made["bi-encoder"].path)
    maps = [
        read_json(icalib.export(run, tmp_path / name, format="sentence-transformer", **options) / "icalib_export.json")
        for name, options in (("own", {}), ("again", {"calibration": "platt"}))
    ]
    own, again = (facts["calibration"] for facts in maps)
    for pool in pools:
        expected = ranker.predict_proba([(texts(pool), candidate) for candidate in pool.candidates])
        cosines = (logit(expected) - own["offset"]) / own["slope"]
        # Platt scaling of probabilities that Platt scaling has calibrated on the same pools leaves them as they are.
        np.testing.assert_allclose(expit(again["slope"] * cosines + again["offset"]), expected, atol=0.01)
