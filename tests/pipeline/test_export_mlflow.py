"""Finished runs exported as MLflow models, loaded by the real MLflow without icalib."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.runs import run_context, small_settings
from huggingface_hub import ModelCard

import icalib
from icalib.core.component import with_settings
from icalib.core.errors import SettingError
from icalib.data.pools import as_pools, iter_pools
from icalib.exports import mlflow_model
from icalib.pipeline.inference import FinishedRun
from icalib.pipeline.loaded_ranker import LoadedRanker
from icalib.pipeline.run import RunContext, run

LOAD = """
import json, sys
sys.modules["icalib"] = None  # an import fails
import mlflow, pandas
model = mlflow.pyfunc.load_model(sys.argv[1])
json.dump(model.predict(pandas.DataFrame(json.load(sys.stdin))).to_dict("list"), sys.stdout)
"""


@pytest.fixture
def around(tmp_path: Path) -> RunContext:
    return run_context(tmp_path / "runs")


def finished(around: RunContext, pools: Path, backbone: Path, method: str, **changes: Any) -> FinishedRun:
    settings = small_settings(method, pools, backbone)
    changed = with_settings(settings.settings, {"post_training": None, **changes})
    return FinishedRun.open(run(settings.model_copy(update={"settings": changed}), around).path)


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> Any:
    for package in ("onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    return pytest.importorskip("mlflow", exc_type=ImportError)


@pytest.mark.filterwarnings("ignore")  # MLflow's own
@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("bert", {"calibration": "isotonic"}),  # with the bi-encoder's similarity
        ("sngp", {}),
        ("bert", {"similarity_start": "none", "encoder.turn_separators": True}),
    ],
)
def test_mlflow_gives_the_runs_probabilities_without_icalib(
    method: str,
    changes: dict[str, Any],
    around: RunContext,
    tiny_pools: Path,
    tiny_bert: Path,
    tmp_path: Path,
    mlflow: Any,
) -> None:
    source = finished(around, tiny_pools, tiny_bert, method, **changes)
    folder = icalib.export(source.folder.path, tmp_path / "model", format="mlflow", license="apache-2.0")
    pools = [pool for batch in iter_pools(tiny_pools, "test") for pool in as_pools(batch)][:9]
    turns = source.folder.context_turns
    long = ["far before", *["a printer that hums [SEP] " * 40] * turns]
    rows = [([turn.text for turn in pool.context], text) for pool in pools for text in pool.candidates]
    rows += [(long, " seat the fuser unit " * 30), (["ok"], "ok")]
    given = json.dumps({"context": [context for context, _ in rows], "candidate": [text for _, text in rows]})
    loaded = subprocess.run(
        [sys.executable, "-c", LOAD, str(folder)], input=given, capture_output=True, text=True, check=False
    )
    assert loaded.returncode == 0, loaded.stderr
    found = json.loads(loaded.stdout)
    expected = LoadedRanker.load(source.folder.path).predict_proba([(c[-turns:], text) for c, text in rows])
    np.testing.assert_allclose(found["probability"], expected, atol=1e-5)
    assert (np.array(found["variance"]) > 0).all() == (method == "sngp")
    assert not [path for path in folder.rglob("*") if path.suffix in (".pkl", ".pickle", ".bin", ".pt")]
    card = ModelCard.load(folder / "README.md").data
    assert (card.library_name, card.pipeline_tag, card.license) == ("mlflow", "text-ranking", "apache-2.0")


@pytest.mark.filterwarnings("ignore")
def test_the_model_has_signature_example_and_requirements(
    around: RunContext, tiny_pools: Path, tiny_bert: Path, tmp_path: Path, mlflow: Any
) -> None:
    source = finished(around, tiny_pools, tiny_bert, "bert", similarity_start="none")
    folder = icalib.export(source.folder.path, tmp_path / "model", format="mlflow")
    info = mlflow.models.get_model_info(str(folder))
    assert info.signature.inputs.input_names() == ["context", "candidate"]
    assert info.signature.outputs.input_names() == ["logit", "probability", "variance"]
    assert info.metadata["data_digest"] == source.data_digest
    requirements = (folder / "requirements.txt").read_text()
    assert "onnxruntime==" in requirements
    assert "icalib" not in requirements
    model = mlflow.pyfunc.load_model(str(folder))
    assert len(model.predict(model.input_example)) == 2
    import pandas as pd

    for context, candidate, message in (([], "a", "row 0: context"), (["a"], "  ", "row 0: candidate")):
        with pytest.raises(ValueError, match=message):
            model.predict(pd.DataFrame({"context": [context], "candidate": [candidate]}))


def test_without_mlflow_the_extra_is_named(
    around: RunContext, tiny_pools: Path, tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = finished(around, tiny_pools, tiny_bert, "bert", similarity_start="none")
    monkeypatch.setattr(mlflow_model, "find_spec", lambda name: None)
    with pytest.raises(SettingError, match=r"needs the package mlflow.*icalib\[mlflow,onnx\]"):
        icalib.export(source.folder.path, tmp_path / "model", format="mlflow")
    assert not (tmp_path / "model").exists()


def test_what_a_graph_cannot_express_is_refused(
    around: RunContext, tiny_pools: Path, tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = finished(around, tiny_pools, tiny_bert, "mc-dropout")
    monkeypatch.setattr("icalib.exports.write.check_mlflow", lambda: None)
    monkeypatch.setattr("icalib.exports.write.check_installed", lambda format: None)
    with pytest.raises(SettingError, match=r"can't be exported as an MLflow model: .*MCDropout"):
        icalib.export(source.folder.path, tmp_path / "model", format="mlflow")
