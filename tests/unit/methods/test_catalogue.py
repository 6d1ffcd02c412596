from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from icalib.calibration.calibrator import PriorShift
from icalib.core.component import with_settings
from icalib.core.errors import SettingError
from icalib.methods.catalogue import describe, load_method, presets
from icalib.methods.method import Method
from icalib.scoring.gain import ALWAYS_INTENTS
from icalib.training.examples import PairLabels, sampled_positions


@pytest.mark.parametrize(("name", "hint"), [("icats", "`icast`"), ("bert-", "`bert`"), ("qqq", "icalib methods")])
def test_a_misspelt_method_names_the_near_ones(name: str, hint: str) -> None:
    with pytest.raises(SettingError, match=hint):
        load_method(name)


def test_a_method_outside_the_package_is_found_by_import_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = tmp_path / "my_lab_of_tests"
    lab.mkdir()
    (lab / "__init__.py").write_text("")
    (lab / "idea7.py").write_text('"""Idea 7."""\nfrom icalib.methods.bert import method\n')
    (lab / "empty.py").write_text("")
    (lab / "wrong.py").write_text("presets = 5\ndef method(): return 7\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert load_method("my_lab_of_tests.idea7") == load_method("bert")
    assert describe("my_lab_of_tests.idea7") == "Idea 7."
    with pytest.raises(SettingError, match=r"no function `method\(\)`"):
        load_method("my_lab_of_tests.empty")
    with pytest.raises(SettingError, match="returned int, expected a Method"):
        load_method("my_lab_of_tests.wrong")
    with pytest.raises(SettingError, match=r"wrong\.presets` is 5, expected a dict"):
        presets("my_lab_of_tests.wrong")
    with pytest.raises(SettingError, match="PYTHONPATH"):
        load_method("my_lab_of_tests.idea8")


def trained(name: str) -> Method:
    method = load_method(name)
    assert isinstance(method, Method)
    return method


@pytest.mark.parametrize("name", ["icast", "icast-teacher", "icast-gpf", "icast-pg"])
@pytest.mark.parametrize("preset", [None, "precise", "bi-encoder"])
def test_a_sum_of_parts_reads_intents_always(name: str, preset: str | None) -> None:
    if preset is None or preset in presets(name):
        method: Any = with_settings(load_method(name), presets(name)[preset] if preset else {})
        assert method.regime.view_rule().gain_threshold == ALWAYS_INTENTS


@pytest.mark.parametrize(
    ("name", "settings", "fraction"),
    [
        ("bert", {"similarity": None, "regime.training.train_negatives": 1}, 0.5),
        ("bert", {"similarity": None}, 0.1),
        ("pg-drr", {"similarity": None, "regime.training.train_negatives": 9}, 0.5),  # that of its support set
        # the students are kept, not the teacher
        ("icast", {"similarity": None, "intent": None, "regime.student.train_negatives": 3}, 0.25),
    ],
)
def test_a_prior_shift_starts_from_the_pairs_that_shape_probabilities(
    name: str, settings: dict[str, object], fraction: float
) -> None:
    method = with_settings(load_method(name), {"calibration": "prior-shift", **settings})
    assert isinstance(method, Method)
    assert method.train_prior(10) == fraction


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("icast-teacher", {"regime.rule.scale": "quantile", "regime.rule.gain_threshold": -0.5}, "absolute"),
        ("bert", {"domain_pretraining.training.epochs": 0}, "found `epochs` 0"),
        ("bert", {"similarity.training.selection_metric": "NLL"}, "NLL.*MAP or R@1"),
        ("icast", {"intent": {"training": {"selection_metric": "MAP"}}}, "`selection_metric` MAP. Expected: NLL"),
        ("pg-drr", {"head.length_scale": math.inf}, "length_scale.*finite"),
        ("bert", {"similarity.temperature": math.nan}, "temperature.*greater than 0|finite"),
        ("gray", {"regime.contrast.margin": 0.5}, "margin ≤ wide_margin"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_the_fix(
    name: str, settings: dict[str, object], message: str
) -> None:
    with pytest.raises((SettingError, ValueError), match=message):
        with_settings(load_method(name), settings)


def test_a_prior_shift_of_a_sum_of_parts_is_refused_before_a_run() -> None:
    method: Any = with_settings(load_method("bert"), {"calibration": "prior-shift"})
    with pytest.raises(SettingError, match=r"cross-encoder alone.*Set `similarity` and `intent` to null"):
        method.check()
    assert method.calibrator is None  # what runs of earlier checkouts have


@pytest.mark.parametrize(("name", "gamma"), [("bert", 0.0), ("focal", 2.0), ("gpf-bert", 2.0), ("sngp", 0.0)])
def test_a_prior_shift_inverts_the_focal_loss_of_its_method(name: str, gamma: float) -> None:
    method = with_settings(load_method(name), {"calibration": "prior-shift", "similarity": None})
    assert isinstance(method, Method)
    assert method.calibrator == PriorShift.Config(gamma=gamma)
    assert method.focal_gamma == gamma


@pytest.mark.parametrize("negatives", [1, 2, 9, None])
@pytest.mark.parametrize("num_right", [1, 2, 4])
def test_the_prior_of_pools_with_several_right_candidates_is_that_of_the_pairs_drawn(
    negatives: int | None, num_right: int
) -> None:
    method = with_settings(load_method("bert"), {"similarity": None, "regime.training.train_negatives": negatives})
    assert isinstance(method, Method)
    rng = np.random.default_rng(0)
    drawn: list[int] = []
    for labels in ([1] * num_right + [0] * (6 - num_right),) * 3 + ([0] * 6,):
        every = np.arange(6)
        pool = PairLabels(0, every, np.array(labels), every < 0, (), learn_intents=False)
        drawn += pool.labels[sampled_positions(pool.labels, negatives, rng)].tolist()
    assert method.train_prior(6, 0.25, float(num_right)) == pytest.approx(np.mean(drawn))


@pytest.mark.parametrize(("negatives", "prior"), [(None, 2 / 12), (1, 2 / 4), (4, 2 / 7)])
def test_the_prior_of_pools_of_different_sizes_is_that_of_all_their_pairs(negatives: int | None, prior: float) -> None:
    method = with_settings(load_method("bert"), {"similarity": None, "regime.training.train_negatives": negatives})
    assert isinstance(method, Method)
    assert method.train_prior(np.array([2, 10])) == pytest.approx(prior)
    softmax = load_method("jm")
    assert isinstance(softmax, Method)
    assert softmax.train_prior(np.array([2, 10])) == pytest.approx(2 / 12)


@pytest.mark.parametrize("num_right", [1, 3])
def test_the_prior_of_a_softmax_is_that_of_probabilities_that_sum_to_one(num_right: int) -> None:
    method = load_method("jm")
    assert isinstance(method, Method)
    assert method.train_prior(10, 0.2, float(num_right)) == pytest.approx(0.1)


@pytest.mark.parametrize(("set_to", "fitted"), [(None, "Platt"), ("isotonic", "Isotonic"), ("prior-shift", "Platt")])
def test_scores_without_training_have_the_calibrator_that_is_set_or_platt_scaling(
    set_to: str | None, fitted: str
) -> None:
    method = with_settings(load_method("bm25"), {"calibration": set_to})
    assert isinstance(method, Method)
    assert type(method.calibrator and method.calibrator.build()).__name__ == fitted
