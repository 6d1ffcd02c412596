"""The spaces that come with icalib, and loading any; what every space must do is in tests/contracts."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from unit.sweeps.made_spaces import GRID, write_space

from icalib.api.settings import composed
from icalib.core.errors import SettingError
from icalib.methods.catalogue import load_method
from icalib.regimes.pseudo_labels import PseudoLabelRule
from icalib.sweeps.space import load_space
from icalib.sweeps.study import feasible_points, proposals


@pytest.mark.parametrize("preset", [None, "bi-encoder", "precise", "paper-icast"])
def test_the_published_protocol_is_the_papers_whatever_the_preset(preset: str | None) -> None:
    """26 of the 41 points obey the order with the published values, and six of these are where the lines cross."""
    base = composed("icast", preset)
    published = base.regime.rule.model_copy(
        update={"scale": "absolute", **PseudoLabelRule(gain_threshold=0.02).thresholds}
    )
    rules = [proposal.method.regime.rule for proposal in proposals(load_space("icast-published"), base, "grid", None)]
    tried = Counter[str]()
    for rule in rules:
        assert rule.scale == "absolute"
        changed = [name for name, value in rule.thresholds.items() if value != published.thresholds[name]]
        assert len(changed) <= 1
        assert rule == published.model_copy(update={name: rule.thresholds[name] for name in changed})
        tried[changed[0] if changed else "none"] += 1
    assert tried == {
        "none": 1,
        "gain_threshold": 4,  # 0, 0.01, 0.03, 0.04
        "positive_threshold": 3,  # above λ̃⁺ = 0.5
        "negative_threshold": 3,  # below λ̃⁻ = 0.5
        "calibrated_positive_threshold": 2,  # from λ̃⁻ = 0.5 to below λ⁺ = 0.8
        "calibrated_negative_threshold": 3,  # above λ⁻ = 0.1, up to λ̃⁺ = 0.5
        "confidence_threshold": 5,  # below ln 2
    }


def test_points_that_give_the_same_method_are_one_trial(tmp_path: Path) -> None:
    text = GRID.replace("trial.suggest_categorical(NAME, [0.1, 0.2, 0.3])", "round(trial.suggest_float('x', 0, 1), 1)")
    space = write_space(
        tmp_path, text.replace("[{NAME: value} for value in (0.1, 0.2, 0.3)]", "[{'x': 0.3}, {'x': 0.31}, {'x': 0.4}]")
    )
    found = proposals(space, load_method("icast"), "grid", None)
    assert [proposal.settings["regime.rule.confidence_threshold"] for proposal in found] == [0.3, 0.4]


def test_a_space_is_found_by_name_path_and_import_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_space("icast-tpe").name == "icast_tpe"
    lab = tmp_path / "lab_of_tests"
    by_path = write_space(lab)
    monkeypatch.syspath_prepend(tmp_path)
    by_import = load_space("lab_of_tests.idea")
    assert (by_path.name, by_path.digest) == (by_import.name, by_import.digest) == ("idea", by_path.digest)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GRID.replace("def suggest", "def propose"), "suggest: Input should be callable"),
        (GRID.replace('"F1"', '"F11"'), "Did you mean `F1`"),
        (GRID.replace('"maximize"', '"minimize"'), "found minimize for F1, of which maximize is better"),
        ('"""A slip."""\nMETHOD = ', "can't be read: SyntaxError"),
    ],
)
def test_an_invalid_space_is_refused_with_what_it_lacks(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingError, match=re.escape(message)):
        write_space(tmp_path, text)


def test_a_misspelt_key_is_named_before_anything_runs(tmp_path: Path) -> None:
    space = write_space(tmp_path, GRID.replace("confidence_threshold", "confidence_treshold"))
    with pytest.raises(SettingError, match="Did you mean `confidence_threshold`"):
        proposals(space, load_method("icast"), "grid", 1)


def test_an_order_that_no_point_meets_is_explained(tmp_path: Path) -> None:
    space = write_space(tmp_path, GRID.replace("confidence_threshold", "positive_threshold"))
    with pytest.raises(SettingError, match=r"nothing that the method accepts.*λ⁻ < λ̃⁻ ≤ λ̃⁺ < λ⁺"):
        proposals(space, load_method("icast"), "grid", None)


GAMMA = """\
'''An idea.'''

import numpy as np

METHOD = "focal"
METRICS = {"F1": "maximize"}


def suggest(trial):
    """
SUGGEST = "return {'loss.gamma': trial.suggest_float('gamma', 0, 5)}"


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ("{'gamma': [1.0]}", r"each point of grid\(\) to be a dict .*found 'gamma'"),
        ("[1 / 0]", r"grid\(\) failed: ZeroDivisionError.*line 14"),
        ("[{}]", r"suggest\(trial\) failed: ValueError"),
        ("[{'gamma': np.int64(1)}]", r"int64\) as gamma, expected a number.*`\.item\(\)`"),
    ],
)
def test_an_error_in_a_grid_is_reported_with_its_line(tmp_path: Path, grid: str, message: str) -> None:
    space = write_space(tmp_path, f"{GAMMA}{SUGGEST}\n\n\ndef grid():\n    return {grid}\n")
    with pytest.raises(SettingError, match=message):
        feasible_points(space, load_method("focal"))
