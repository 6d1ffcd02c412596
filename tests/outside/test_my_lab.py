"""A package outside of icalib brings one of each kind; each is named by its import path and needs no edit of icalib.

That each works is tested by the conformance suites (tests/contracts), which discover them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.discovery import OUTSIDE, discovered, methods, metrics, readers, samplers, spaces

from icalib.calibration.calibrator import AbstractCalibrator
from icalib.core.component import with_settings
from icalib.heads.head import AbstractHead
from icalib.losses.binary import AbstractLoss
from icalib.methods.catalogue import load_method
from icalib.methods.method import Method
from icalib.uncertainty.estimator import AbstractEstimator

COMPONENTS = {
    "head": "my_lab.heads.MLPHead",
    "loss": "my_lab.losses.Soft",
    "uncertainty": "my_lab.estimators.AnchoredDropout",
    "calibration": "my_lab.calibrators.MeanMatching",
}
HERE = Path(__file__).parent


@pytest.mark.parametrize(("setting", "path"), COMPONENTS.items())
def test_a_component_is_set_by_its_import_path_and_saved_with_it(setting: str, path: str) -> None:
    method = with_settings(load_method("bert"), {setting: path})
    saved = method.model_dump(mode="json")
    assert saved[setting]["target"] == path
    assert Method.model_validate(saved) == method


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
    assert "my_lab.metrics:mean_rank" in metrics()


def test_a_command_in_another_folder_finds_them_through_pythonpath(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "icalib", "show", "my_lab.methods.idea7"]
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    found = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert "head.hidden_size = 64" in found.stdout
