from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy.special import expit

from icalib.core.errors import RunFolderError
from icalib.core.files import write_json
from icalib.parts.fit import fit_sum
from icalib.parts.sum import PARTS_FILE, PartWeight, SumOfParts, read_member
from icalib.scoring.column import Column, added


def simulated(
    weights: dict[str, float], offset: float, *, num_components: int = 1
) -> tuple[dict[str, Column], pa.Table]:
    """Columns on different scales, and labels of 4000 pools of 5 drawn from the sum's mean probability."""
    rng = np.random.default_rng(0)
    scales = dict(zip(weights, (0.5, 3.0, 1.0), strict=False))
    columns: dict[str, Column] = {}
    for name, scale in scales.items():
        mean_SN = scale * (rng.normal(size=20000) + 0.5 * rng.normal(size=(num_components, 20000)))
        columns[name] = Column(mean_SN, np.zeros_like(mean_SN))
    logit_SN = offset + sum(weights[name] * column.mean_SN for name, column in columns.items())
    label_N = (rng.random(20000) < expit(logit_SN).mean(0)).astype(np.int32)
    pools = {"pool_id": np.repeat(np.arange(4000), 5).astype(str), "candidate": np.tile(np.arange(5), 4000)}
    return columns, pa.table({**pools, "label": label_N})


@pytest.mark.parametrize("value", [0.1, 0.3])
def test_a_constant_part_has_no_weight_without_digits(value: float) -> None:
    """The deviation of 0.1s is 1.4e-17."""
    pools = {"pool_id": np.repeat(np.arange(30), 10).astype(str), "candidate": np.tile(np.arange(10), 30)}
    pairs = pa.table({**pools, "label": (pools["candidate"] == 0).astype(np.int32)})
    fitted = fit_sum({"similarity": Column.certain(np.full(300, value))}, pairs)
    assert fitted.weight("similarity") <= 1.0
    assert expit(fitted.offset + fitted.weight("similarity") * value) == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize("num_components", [1, 4])
def test_weights_are_recovered_and_a_useless_part_has_none(num_components: int) -> None:
    truth = {"similarity": 2.0, "intent": 0.4, "cross": 0.0}
    fitted = fit_sum(*simulated(truth, -1.5, num_components=num_components))
    assert fitted.used == ("similarity", "intent")
    assert [fitted.weight(name) for name in truth] == pytest.approx(list(truth.values()), rel=0.06)
    assert fitted.weight("cross") == 0.0
    assert fitted.offset == pytest.approx(-1.5, abs=0.06)
    recalls, losses = ({part.name: getattr(part, name) for part in fitted.parts} for name in ("recall", "nll"))
    assert fitted.recall > max(recalls.values()) > recalls["cross"]
    assert fitted.nll < min(losses.values()) < losses["cross"]


def test_a_part_that_points_the_wrong_way_has_no_weight() -> None:
    columns, pairs = simulated({"similarity": 1.0, "intent": -0.5}, 0.0)
    assert fit_sum(columns, pairs).used == ("similarity",)


def test_a_part_without_others_ranks_however_badly() -> None:
    columns, pairs = simulated({"similarity": -1.0}, 0.0)
    fitted = fit_sum(columns, pairs)
    assert 0 < fitted.weight("similarity") < 0.01
    assert fitted.used == ("similarity",)


def test_about_one_useless_part_of_twelve_is_worth_a_nat_by_chance() -> None:
    """Twice the gain of a useless part is χ² with one degree of freedom where its weight would be positive, else 0."""
    rng, kept = np.random.default_rng(1), 0
    pools = {"pool_id": np.repeat(np.arange(40), 5).astype(str), "candidate": np.tile(np.arange(5), 40)}
    for _ in range(80):
        useful, useless = rng.normal(size=(2, 200))
        label = (rng.random(200) < expit(2 * useful)).astype(np.int32)
        columns = {"similarity": Column.certain(useful), "intent": Column.certain(useless)}
        kept += "intent" in fit_sum(columns, pa.table({**pools, "label": label})).used
    assert 2 <= kept <= 14  # 80 · P(χ² > 2) / 2 is 6.3


def test_of_two_equal_parts_one_is_used() -> None:
    columns, pairs = simulated({"similarity": 1.0}, 0.0)
    fitted = fit_sum({**columns, "cross": columns["similarity"]}, pairs)
    assert len(fitted.used) == 1
    assert sum(part.weight for part in fitted.parts) == pytest.approx(1.0, rel=0.1)


def test_a_variance_that_differs_between_pairs_shrinks_what_is_sure_too_often() -> None:
    rng = np.random.default_rng(1)
    mean_N, var_N = 2 * rng.normal(size=20000), rng.choice([0.0, 9.0], 20000)
    label_N = (rng.random(20000) < expit(mean_N + np.sqrt(var_N) * rng.normal(size=20000))).astype(np.int32)
    pools = {"pool_id": np.repeat(np.arange(4000), 5).astype(str), "candidate": np.tile(np.arange(5), 4000)}
    fitted = fit_sum({"intent": Column(mean_N[None], var_N[None])}, pa.table({**pools, "label": label_N}))
    assert fitted.weight("intent") == pytest.approx(1.0, rel=0.1)


def test_weights_are_fitted_to_the_mean_field_that_predicts() -> None:
    rng = np.random.default_rng(2)
    mean_N, var_N = 2 * rng.normal(size=20000), rng.choice([2.0, 6.0], 20000)
    pools = {"pool_id": np.repeat(np.arange(4000), 5).astype(str), "candidate": np.tile(np.arange(5), 4000)}
    for factor in (0.0, 0.1, np.pi / 8):
        prob_N = expit((1.5 * mean_N - 1) / np.sqrt(1 + factor * 1.5**2 * var_N))
        label_N = (rng.random(20000) < prob_N).astype(np.int32)
        fitted = fit_sum({"cross": Column(mean_N[None], var_N[None])}, pa.table({**pools, "label": label_N}), factor)
        assert (fitted.weight("cross"), fitted.offset) == pytest.approx((1.5, -1.0), rel=0.1)


def test_a_part_with_more_variance_than_signal_has_a_bounded_weight() -> None:
    rng = np.random.default_rng(4)
    label_N = np.tile([1, 0, 0, 0, 0], 400).astype(np.int32)
    mean_N, var_N = 1e-3 * (rng.normal(size=2000) + 2 * label_N), 0.1 + 0.01 * rng.random(2000)
    pools = {"pool_id": np.repeat(np.arange(400), 5).astype(str), "candidate": np.tile(np.arange(5), 400)}
    column = Column(mean_N[None], var_N[None])
    fitted = fit_sum({"intent": column}, pa.table({**pools, "label": label_N}))
    found = fitted.of({"intent": {"plain": column}}, "plain", 2000)
    assert found.var_SN.mean() <= 16.1
    assert np.abs(found.mean_SN).max() < 10
    assert fitted.nll < 0.4995  # that of the base rate is 0.5004


def test_columns_are_added_component_by_component_and_one_component_is_repeated() -> None:
    rng = np.random.default_rng(2)
    one, five, both = (Column(rng.normal(size=(s, 7)), rng.random((s, 7))) for s in (1, 5, 5))
    found = added([one, five, both], [2.0, 0.5, 3.0], -1.0)
    for component in range(5):
        for pair in range(7):
            mean = -1.0 + 2.0 * one.mean_SN[0, pair] + 0.5 * five.mean_SN[component, pair]
            var = 4.0 * one.var_SN[0, pair] + 0.25 * five.var_SN[component, pair]
            assert found.mean_SN[component, pair] == pytest.approx(mean + 3.0 * both.mean_SN[component, pair])
            assert found.var_SN[component, pair] == pytest.approx(var + 9.0 * both.var_SN[component, pair])
    assert added([one], [1.0], 0.0).num_components == 1
    with pytest.raises(ValueError, match=r"\[3, 5\] components"):
        added([one, five, Column(np.zeros((3, 7)), np.zeros((3, 7)))], [1.0] * 3, 0.0)


def test_a_sum_has_each_view_that_a_part_has_and_the_others_are_the_same_in_both() -> None:
    plain, intent = (Column.certain(np.array(values)) for values in ([1.0, 2.0], [3.0, 5.0]))
    parts = tuple(PartWeight(name=name, weight=weight) for name, weight in (("similarity", 2.0), ("cross", 1.0)))
    fitted = SumOfParts(parts=parts, offset=0.5)
    found = fitted.columns({"similarity": {"plain": plain}, "cross": {"plain": plain, "intent": intent}}, 2)
    assert {view: column.mean_SN[0].tolist() for view, column in found.items()} == {
        "plain": [3.5, 6.5],
        "intent": [5.5, 9.5],
    }
    assert set(fitted.columns({"similarity": {"plain": plain}, "cross": {"plain": plain}}, 2)) == {"plain"}


def test_limit_a_sum_of_one_part_is_that_part() -> None:
    rng = np.random.default_rng(3)
    column = Column(rng.normal(size=(4, 6)), rng.random((4, 6)))
    found = SumOfParts.alone("cross").of({"cross": {"plain": column}}, "plain", 6)
    np.testing.assert_array_equal(found.mean_SN, column.mean_SN)
    np.testing.assert_array_equal(found.var_SN, column.var_SN)


def test_a_weight_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    write_json(tmp_path / PARTS_FILE, SumOfParts.alone("cross").model_dump(mode="json"))
    with pytest.raises(RunFolderError, match=r"gives a weight to cross.*--fresh"):
        read_member(tmp_path)
    (tmp_path / "cross").mkdir()
    assert read_member(tmp_path) == (SumOfParts.alone("cross"), {"cross": tmp_path / "cross"})
