"""A package outside of icalib brings one of each kind; each is named by its import path and needs no edit of icalib."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.discovery import OUTSIDE, discovered, methods, readers, samplers, spaces
from helpers.tiny_models import token_store
from helpers.tiny_training import train_and_score
from typer.testing import CliRunner

from icalib.calibration.calibrator import AbstractCalibrator
from icalib.cli.app import app
from icalib.core.component import with_settings
from icalib.core.errors import SettingError
from icalib.data.encoding import TokenStore
from icalib.heads.head import AbstractHead
from icalib.losses.binary import AbstractLoss
from icalib.methods.catalogue import load_method
from icalib.methods.composition import Method
from icalib.sweeps.space import load_space
from icalib.sweeps.study import proposals
from icalib.uncertainty.estimator import AbstractEstimator

COMPONENTS = {
    "head": "my_lab.heads.MLPHead",
    "loss": "my_lab.losses.Soft",
    "uncertainty": "my_lab.estimators.AnchoredDropout",
    "calibration": "my_lab.calibrators.MeanMatching",
}
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def store(tiny_pools: Path, tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    return token_store(tiny_pools, "train", tiny_bert, tmp_path_factory.mktemp("tokens"))


def bert_with(**settings: Any) -> Method:
    method = with_settings(load_method("bert"), settings)
    assert isinstance(method, Method)
    return method


@pytest.mark.parametrize(("setting", "path"), COMPONENTS.items())
def test_a_component_is_set_by_its_import_path_and_saved_with_it(setting: str, path: str) -> None:
    method = bert_with(**{setting: path})
    saved = method.model_dump(mode="json")
    assert saved[setting]["target"] == path
    assert Method.model_validate(saved) == method


@pytest.mark.parametrize("setting", ["head", "loss", "uncertainty"])
def test_a_ranker_with_it_trains_two_steps_and_scores(setting: str, tiny_bert: Path, store: TokenStore) -> None:
    run = train_and_score(bert_with(**{setting: COMPONENTS[setting]}), tiny_bert, store)
    assert run.num_steps >= 2
    assert run.scores["num_passes"].to_pylist() == [5 if setting == "uncertainty" else 1] * 4
    changed = {name for name, tensor in run.ranker.state_dict().items() if not torch.equal(tensor, run.before[name])}
    assert any(name.startswith("answer_head.") for name in changed)


def test_a_calibrator_is_fitted_on_scores() -> None:
    calibration = bert_with(calibration=COMPONENTS["calibration"]).calibration
    assert calibration is not None
    logits, labels = np.linspace(-4, 2, 200), (np.arange(200) % 10 == 0).astype(np.int64)
    fitted = calibration.build().fit(logits, labels)
    assert fitted.apply(logits).mean() == pytest.approx(labels.mean())


def test_what_it_requires_is_checked_like_what_ours_do() -> None:
    with pytest.raises(SettingError, match=r"found PoolCrossEntropy as `loss`, .* which MeanMatching .* requires"):
        with_settings(load_method("jm"), {"calibration": COMPONENTS["calibration"]})


def test_a_method_is_made_of_them_and_trains_two_steps(tiny_bert: Path, store: TokenStore) -> None:
    method = load_method("my_lab.methods.idea7")
    assert isinstance(method, Method)
    saved = method.model_dump(mode="json")
    assert {setting: saved[setting]["target"] for setting in COMPONENTS} == COMPONENTS
    assert train_and_score(method, tiny_bert, store).num_steps >= 2


def test_a_sweep_space_changes_settings_of_an_outside_method() -> None:
    space = load_space("my_lab.spaces.idea7")
    found = proposals(space, load_method(space.method), space.sampler, None)
    assert len(found) == 8
    assert found[0].settings == {"loss.epsilon": 0.0, "head.hidden_size": 16}


def test_the_conformance_suites_discover_everything() -> None:
    assert OUTSIDE == ("my_lab",)
    for base, setting in {
        AbstractHead: "head",
        AbstractLoss: "loss",
        AbstractEstimator: "uncertainty",
        AbstractCalibrator: "calibration",
    }.items():
        assert COMPONENTS[setting] in [f"{owner.__module__}.{owner.__name__}" for owner in discovered(base)]
    assert "my_lab.methods.idea7" in methods()
    assert "my_lab.spaces.idea7" in spaces()
    assert "my_lab.readers:zendesk" in readers()
    assert "my_lab.samplers:nearest" in samplers()


def test_the_command_line_shows_them_by_import_path() -> None:

    shown = CliRunner().invoke(app, ["show", "bert", "--set", "loss=my_lab.losses.Soft", "--set", "loss.epsilon=0.3"])
    assert shown.exit_code == 0, shown.output
    assert "loss.epsilon = 0.3" in shown.output
    assert "[Soft] ε; 0 is the binary cross-entropy." in shown.output


def test_a_command_in_another_folder_finds_them_through_pythonpath(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "icalib", "show", "my_lab.methods.idea7"]
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    found = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert "head.hidden_size = 64" in found.stdout


def test_what_is_not_on_the_path_is_refused_with_the_cure() -> None:
    with pytest.raises(SettingError, match="PYTHONPATH"):
        load_method("my_other_lab.methods.idea8")
    with pytest.raises(SettingError, match="PYTHONPATH"):
        load_space("my_other_lab.spaces.idea8")
    with pytest.raises(SettingError, match="No module named 'my_other_lab'"):
        bert_with(loss="my_other_lab.losses.Soft")
