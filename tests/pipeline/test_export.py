"""Finished runs exported: read back by the real sentence-transformers, and what is refused."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.pool_folders import read_pools
from helpers.runs import small_settings
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from scipy.special import logit
from transformers import AutoTokenizer

import icalib
from icalib.core.errors import SettingError
from icalib.core.files import read_json
from icalib.core.parquet import read_parquet
from icalib.data.pools import read_column, read_rows
from icalib.data.schema import Pool
from icalib.exports.onnx import _written_scorer
from icalib.exports.subject import ranker_of
from icalib.exports.texts import PairTexts
from icalib.parts.sum import PartWeight, SumOfParts
from icalib.pipeline.finished import FinishedRun
from icalib.pipeline.loaded_ranker import LoadedRanker
from icalib.pipeline.run import RunContext, run


def finished(
    around: RunContext, pools: Path, backbone: Path, name: str, method: str = "bert", **changes: Any
) -> FinishedRun:
    """A run whose own seed drew the labelled pools."""
    settings = small_settings(method, pools, backbone, experiment=name, domain_pretraining=None, **changes)
    return FinishedRun.open(run(settings.model_copy(update={"resample_labels": True}), around).path)


@pytest.fixture(scope="module")
def plain(around: RunContext, tiny_pools: Path, tiny_bert: Path) -> FinishedRun:
    """One pass, a linear head, Platt scaling: all of it folds."""
    return finished(around, tiny_pools, tiny_bert, "plain", calibration="platt")


@pytest.fixture(scope="module")
def pools(tiny_pools: Path) -> list[Pool]:
    return read_pools(tiny_pools, "test")[:10]


def cross_encoder(folder: Path) -> Any:
    from sentence_transformers import CrossEncoder

    return CrossEncoder(str(folder), device="cpu", local_files_only=True)


def test_the_stock_cross_encoder_gives_the_runs_calibrated_probabilities(
    plain: FinishedRun, pools: list[Pool], tmp_path: Path
) -> None:
    folder = icalib.export(plain.folder.path, tmp_path / "model", license="apache-2.0")
    model, ranker = cross_encoder(folder), LoadedRanker.load(plain.folder.path)
    assert isinstance(model.activation_fn, torch.nn.Sigmoid)
    for pool in pools[:4]:
        context = [turn.text for turn in pool.context]
        expected = ranker.predict_proba([(context, candidate) for candidate in pool.candidates])
        pairs = icalib.pair_texts(folder, context, pool.candidates)
        found = model.predict(pairs)
        np.testing.assert_allclose(logit(found.astype(np.float64)), logit(expected), atol=1e-5)
        scores = [one["score"] for one in model.rank(pairs[0][0], list(pool.candidates))]
        np.testing.assert_allclose(scores, [one.prob for one in ranker.rank(context, pool.candidates)], atol=1e-6)
    card = ModelCard.load(folder / "README.md").data
    assert (card.pipeline_tag, card.library_name, card.license) == (
        "text-ranking",
        "sentence-transformers",
        "apache-2.0",
    )
    results = {(one.dataset_split, one.metric_name): one.metric_value for one in card.eval_results or []}
    assert results["test", "R@1"] == pytest.approx(plain.folder.result["test"]["R@1"])
    assert results["test", "ECE"] == pytest.approx(plain.folder.result["test"]["ECE"])
    text = (folder / "README.md").read_text()
    assert plain.folder.data_digest in text
    assert "| probability | pairs | mean probability | right |" in text
    assert read_json(folder / "icalib_export.json")["agreement"]["largest_difference"] < 1e-5
    with pytest.raises(SettingError, match="not an empty folder"):
        icalib.export(plain.folder.path, folder)


@pytest.mark.parametrize(
    ("format", "method"), [("cross-encoder", "bert"), pytest.param("onnx", "sngp", marks=pytest.mark.slow)]
)
def test_a_part_alone_keeps_its_weight_in_the_sum(
    around: RunContext, tiny_pools: Path, tiny_bert: Path, pools: list[Pool], tmp_path: Path, format: Any, method: str
) -> None:
    """As where the similarity part got the weight 0."""
    if format == "onnx":
        pytest.importorskip("onnxscript")
        pytest.importorskip("onnxruntime")
    source = finished(around, tiny_pools, tiny_bert, "weighted", method, calibration=None)
    folder = shutil.copytree(source.folder.path, tmp_path / "run")
    parts = FinishedRun.open(folder).members[0][0] / "parts.json"
    parts.write_text(SumOfParts(parts=(PartWeight(name="cross", weight=0.7),), offset=-1.1).model_dump_json())
    (folder / "files.json").unlink()
    exported = icalib.export(folder, tmp_path / "model", format=format)
    context = [turn.text for turn in pools[0].context]
    pairs = [(context, candidate) for candidate in pools[0].candidates]
    expected = LoadedRanker.load(folder).predict_proba(pairs)
    assert np.abs(expected - LoadedRanker.load(source.folder.path).predict_proba(pairs)).max() > 0.01
    if format == "onnx":
        subject = ranker_of(FinishedRun.open(folder), "run")
        tokenizer = AutoTokenizer.from_pretrained(exported)
        score = _written_scorer(subject.model, exported, tokenizer, PairTexts.read(exported))
        found = score(pools[0]).outputs_CK[:, 1]
    else:
        found = cross_encoder(exported).predict(icalib.pair_texts(exported, context, pools[0].candidates))
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_weights_are_as_they_were_trained_though_scoring_rounds_them(
    around: RunContext, tiny_pools: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    source = finished(around, tiny_pools, tiny_bert, "bf16", calibration="platt", **{"scoring.precision": "bf16"})
    folder = icalib.export(source.folder.path, tmp_path / "model", format="cross-encoder")
    assert read_json(folder / "icalib_export.json")["agreement"]["largest_difference"] < 1e-5
    exported = load_file(folder / "model.safetensors")
    trained = load_file(source.members[0][0] / "cross" / "model.safetensors")
    name = "encoder.layer.0.attention.self.query.weight"
    torch.testing.assert_close(exported[f"bert.{name}"], trained[f"encoder.backbone.{name}"], rtol=0, atol=0)


def test_a_student_of_any_run_is_a_cross_encoder(
    around: RunContext,
    tiny_pools: Path,
    tiny_bert: Path,
    pools: list[Pool],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """Two texts of a context and MC dropout: nothing of it folds."""
    command = request.getfixturevalue("icalib")
    quick = {"regime.training.epochs": 1, "uncertainty.num_passes": 2}
    teacher = finished(around, tiny_pools, tiny_bert, "teacher", "icast-teacher", **quick)
    distil = ("--distil", "--limit", 30, "--runs", around.runs, "--executor", "local")
    assert command("export", teacher.folder.path, "--out", tmp_path / "student", *distil)[0] == 0
    context = [turn.text for turn in pools[0].context]
    found = cross_encoder(tmp_path / "student").predict(
        icalib.pair_texts(tmp_path / "student", context, pools[0].candidates)
    )
    assert ((found > 0) & (found < 1)).all()
    text = (tmp_path / "student" / "README.md").read_text()
    assert "| the run, test |" in text
    assert "| loss, test |" in text
    about = read_json(tmp_path / "student" / "icalib_export.json")
    assert about["distilled"] is True
    assert about["metrics"]["the run, test"]["R@1"] == pytest.approx(teacher.folder.result["test"]["R@1"])
    (targets,) = around.runs.glob(".cache/distil-targets-*/targets.parquet")
    order = read_column(tiny_pools, "train", "label_order")
    rows = teacher.config.selection.rows("train", "labelled", order)
    labelled = set(read_rows(tiny_pools, "train", rows, ["pool_id"])["pool_id"].to_pylist())
    assert labelled < set(read_parquet(targets)["pool_id"].to_pylist())
    whole = targets.read_bytes()
    targets.write_bytes(whole[:-20])  # damaged files are not believed
    icalib.export(teacher.folder.path, tmp_path / "again", distil=True, limit=30, runs=around.runs, executor="local")
    assert targets.read_bytes() == whole


def test_a_student_separates_utterances_where_stock_rerankers_need_that(
    around: RunContext, tiny_pools: Path, tiny_roberta: Path, pools: list[Pool], tmp_path: Path
) -> None:
    teacher = finished(around, tiny_pools, tiny_roberta, "bytes")
    with pytest.raises(SettingError, match="Add --distil"):
        icalib.export(teacher.folder.path, tmp_path / "exact")
    options: dict[str, Any] = {"distil": True, "limit": 10, "runs": around.runs, "executor": "local"}
    folder = icalib.export(teacher.folder.path, tmp_path / "student", **options)
    pairs = icalib.pair_texts(folder, [turn.text for turn in pools[0].context], pools[0].candidates)
    assert "</s>" in pairs[0][0]
    found = cross_encoder(folder).predict(pairs)
    assert ((found > 0) & (found < 1)).all()


@pytest.mark.slow  # building a graph takes half a minute
def test_a_graph_gives_the_runs_calibrated_probabilities(
    around: RunContext, tiny_pools: Path, tiny_bert: Path, pools: list[Pool], tmp_path: Path
) -> None:
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    source = finished(
        around, tiny_pools, tiny_bert, "graph", "sngp", calibration="temperature",
        **{"head.num_features": 64, "uncertainty.integration": "mean_field"},
    )  # fmt: skip
    folder = icalib.export(source.folder.path, tmp_path / "graph", format="onnx")
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), flags=re.DOTALL)
    context = [turn.text for turn in pools[0].context]
    names: dict[str, Any] = {"QUESTION": (context, pools[0].candidates)}
    code = code.replace('"graph', f'"{folder}').replace('["My printer hums."], ["Restart it.", "Hello!"]', "*QUESTION")
    exec(code, names)
    ranker = LoadedRanker.load(source.folder.path)
    expected = ranker.predict_proba([(context, candidate) for candidate in pools[0].candidates])
    np.testing.assert_allclose(names["probabilities"], expected, atol=1e-4)
