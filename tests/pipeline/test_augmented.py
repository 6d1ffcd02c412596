"""Methods that learn from generated texts, whole: retrieved texts, and language models'."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from helpers.runs import CPU, Silent, run_context, small_settings, table_digest
from helpers.tiny_language_models import Kind, write_tiny_language_model
from helpers.tiny_models import pool_texts

from icalib.core.errors import SettingError
from icalib.core.events import ignore
from icalib.core.files import read_json
from icalib.core.job import Artifact
from icalib.core.run_folder import RunFolder
from icalib.data.pools import read_pool_set
from icalib.data.selection import Selection
from icalib.generation.job import GenerateJob
from icalib.generation.language_model import LanguageModel
from icalib.pipeline.run import check_fits, run
from icalib.stages.executor import LocalExecutor

GENERATOR = {
    "training": {"epochs": 1, "learning_rate": 1e-3, "precision": "fp32"},
    "max_source_tokens": 40,
    "max_target_tokens": 10,
    "pools_per_shard": 5,
}


def language_model(folder: Path, kind: Kind, pools: Path) -> dict[str, Any]:
    """Settings of a tiny generator."""
    return {"target": str(write_tiny_language_model(folder / kind, kind, pool_texts(pools))), **GENERATOR}


def stage_path(finished: RunFolder, name: str) -> Path:
    (path,) = (stage["path"] for stage in finished.stages if stage["name"] == name)
    return Path(path)


def test_gray_learns_from_retrieved_answers_and_records_it(runs: Path, tiny_pools: Path, tiny_bert: Path) -> None:
    listener = Silent()
    finished = run(small_settings("gray", tiny_pools, tiny_bert), run_context(runs, listener))
    assert [stage["name"] for stage in finished.stages] == [
        "grey-answers", "grey-answers/generated-tokens", "tokens", "domain-pretraining", "teacher",
        "validation/scores-cross", "validation/scores", "test/scores-cross", "test/scores",
    ]  # fmt: skip
    generated = read_json(finished.path / "provenance.json")["generated"]
    assert generated["generator"] == "retrieved (bm25 of the last user utterance)"
    (line,) = (line for line in listener.messages if line.startswith("grey answers: retrieved (bm25"))
    assert f"{generated['answers']} answers" in line
    texts = pq.read_table(finished.path / "generated" / "grey-answers.parquet")
    assert texts.num_rows == generated["num_pools"] > 10
    assert "loss/answer_contrast" in finished.training()["tag"].to_pylist()
    assert finished.result["test"]["num_pools"] == 12


def test_big_learns_from_two_models_that_write(runs: Path, tiny_pools: Path, tiny_bert: Path, tmp_path: Path) -> None:
    generator = language_model(tmp_path, "bart", tiny_pools)
    settings = small_settings("big", tiny_pools, tiny_bert, **{"regime.generator": generator})
    listener = Silent()
    finished = run(settings, run_context(runs, listener))
    names = [stage["name"] for stage in finished.stages]
    assert names[:3] == ["answer-generator", "question-generator", "pseudo-positives"]
    assert "pseudo-positives/generated-tokens" in names
    assert {"answer_generator", "question_generator"} <= set(finished.training()["stage"].to_pylist())
    generated = read_json(finished.path / "provenance.json")["generated"]
    assert generated["generator"] == f"{generator['target']}, fine-tuned (nucleus, p = 0.9)"
    assert generated["contexts"] > 0


def test_gray_learns_from_a_model_that_writes_and_resumes_where_it_was(
    runs: Path, tiny_pools: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    generator = language_model(tmp_path, "t5", tiny_pools)
    settings = small_settings("gray", tiny_pools, tiny_bert, **{"regime.generator": generator})
    finished = run(settings.model_copy(update={"experiment": "written"}), run_context(runs, Silent()))
    shards = sorted(stage_path(finished, "grey-answers").glob("texts-*.parquet"))
    assert len(shards) > 2
    assert any(pq.read_table(shards[0])["answers"].to_pylist())
    job = GenerateJob(
        data=Artifact(path=tiny_pools, digest="pools"),
        selection=Selection(labelled_fraction=0.3),
        wanted="grey_answers",
        num_answers=2,
        generator=LanguageModel.Config.model_validate({**GENERATOR, "model": generator["target"]}),
        models={"answer": Artifact(path=stage_path(finished, "answer-generator") / "checkpoint", digest="model")},
    )
    again = tmp_path / "again"
    again.mkdir()
    (again / shards[1].name).write_bytes(shards[1].read_bytes())  # what an interrupted run left
    before = (again / shards[1].name).stat().st_mtime_ns
    LocalExecutor(CPU).map(job, again, "grey-answers", ignore)
    assert (again / shards[1].name).stat().st_mtime_ns == before
    assert table_digest(*sorted(again.glob("texts-*.parquet"))) == table_digest(*shards)


def test_a_generator_that_can_not_be_loaded_is_refused_first(tiny_pools: Path, tiny_bert: Path, tmp_path: Path) -> None:
    settings = small_settings("gray", tiny_pools, tiny_bert, **{"regime.generator": str(tmp_path / "nothing")})
    with pytest.raises(SettingError, match="can't load the generator"):
        check_fits(settings, read_pool_set(tiny_pools))
