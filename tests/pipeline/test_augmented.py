"""Methods that learn from generated texts, whole: retrieved texts, and language models'."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from helpers.runs import Silent, prediction_digest, run_context, small_settings
from helpers.tiny_language_models import Kind, write_tiny_language_model
from helpers.tiny_models import pool_texts

from icalib.core.errors import SettingError
from icalib.core.files import read_json
from icalib.pipeline.run import check_fits, run

GENERATOR = {
    "training": {"epochs": 1, "learning_rate": 1e-3, "precision": "fp32"},
    "max_source_tokens": 40,
    "max_target_tokens": 10,
    "pools_per_shard": 5,
}


def language_model(folder: Path, kind: Kind, pools: Path) -> dict[str, Any]:
    """Settings of a tiny generator."""
    return {"target": str(write_tiny_language_model(folder / kind, kind, pool_texts(pools))), **GENERATOR}


def test_gray_learns_from_retrieved_answers_and_records_it(runs: Path, tiny_pools: Path, tiny_bert: Path) -> None:
    listener = Silent()
    finished = run(small_settings("gray", tiny_pools, tiny_bert), run_context(runs, listener))
    assert [stage["name"] for stage in finished.stages] == [
        "tokens", "post-training", "grey-answers", "grey-answers/generated-tokens", "teacher", "validation/scores",
        "test/scores",
    ]  # fmt: skip
    generated = read_json(finished.path / "provenance.json")["generated"]
    assert generated["generator"] == "retrieved (bm25 of the last user utterance)"
    (line,) = (line for line in listener.messages if line.startswith("grey answers: retrieved (bm25"))
    assert f"{generated['answers']['bm25 of the question']} × bm25 of the question" in line
    texts = pq.read_table(finished.path / "generated" / "grey-answers.parquet")
    assert texts.num_rows == generated["num_pools"] > 10
    assert "loss/answer_contrast" in finished.training()["tag"].to_pylist()
    assert finished.result["test"]["num_pools"] == 12


def test_without_weight_gray_is_bert_and_shares_its_stages(runs: Path, tiny_pools: Path, tiny_bert: Path) -> None:
    bert = run(small_settings("bert", tiny_pools, tiny_bert, calibration="platt"), run_context(runs, Silent()))
    listener = Silent()
    none = small_settings("gray", tiny_pools, tiny_bert, **{"regime.contrast.weight": 0.0})
    gray = run(none.model_copy(update={"experiment": "no-weight"}), run_context(runs, listener))
    assert all(listener.stages.values())
    assert prediction_digest(gray) == prediction_digest(bert)


def test_big_learns_from_two_models_that_write(runs: Path, tiny_pools: Path, tiny_bert: Path, tmp_path: Path) -> None:
    generator = language_model(tmp_path, "bart", tiny_pools)
    settings = small_settings("big", tiny_pools, tiny_bert, **{"regime.generator": generator})
    listener = Silent()
    finished = run(settings, run_context(runs, listener))
    names = [stage["name"] for stage in finished.stages]
    assert names[2:5] == ["answer-generator", "question-generator", "pseudo-positives"]
    assert names[5] == "pseudo-positives/generated-tokens"
    assert {"answer_generator", "question_generator"} <= set(finished.training()["stage"].to_pylist())
    generated = read_json(finished.path / "provenance.json")["generated"]
    assert generated["generator"] == f"{generator['target']}, fine-tuned (nucleus, p = 0.9)"
    assert generated["contexts"].keys() == {"generated question"}


def test_a_generator_that_can_not_be_loaded_is_refused_first(tiny_pools: Path, tiny_bert: Path, tmp_path: Path) -> None:
    from icalib.data.pools import read_pool_set

    settings = small_settings("gray", tiny_pools, tiny_bert, **{"regime.generator": str(tmp_path / "nothing")})
    with pytest.raises(SettingError, match="can't load the generator"):
        check_fits(settings, read_pool_set(tiny_pools))
