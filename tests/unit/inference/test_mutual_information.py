from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import entropy

from icalib.inference.moments import binary_entropy, sample_moments

logits_of_passes = st.lists(st.lists(st.floats(-40, 40), min_size=3, max_size=3), min_size=1, max_size=8)


def test_binary_entropy_is_that_of_scipy_and_zero_at_the_ends() -> None:
    prob = np.array([0.0, 0.1, 0.5, 0.9, 1.0])
    expected = entropy(np.stack([prob, 1 - prob]))
    np.testing.assert_allclose(binary_entropy(torch.from_numpy(prob)).numpy(), expected, atol=1e-15)


@pytest.mark.parametrize(
    ("probs", "expected"),
    [((0.9, 0.9, 0.9, 0.1, 0.1), 0.355), ((0.99, 0.99, 0.99, 0.99, 0.01), 0.453), ((0.95, 0.9, 0.3, 0.8, 0.6), 0.141)],
)
def test_the_two_sided_formula_gives_known_values(probs: tuple[float, ...], expected: float) -> None:
    result = sample_moments(torch.logit(torch.tensor(probs, dtype=torch.float64))[:, None])
    assert result.mutual_information.item() == pytest.approx(expected, abs=5e-4)


@given(logits_of_passes)
def test_information_is_between_zero_and_the_entropy_of_the_mean(logits: list[list[float]]) -> None:
    result = sample_moments(torch.tensor(logits, dtype=torch.float64))
    assert (result.mutual_information >= 0).all()
    assert (result.mutual_information <= binary_entropy(result.prob_mean) + 1e-12).all()


def test_limit_identical_passes_share_nothing_and_opposite_ones_ln_2() -> None:
    same = sample_moments(torch.full((4, 1), 2.5).bfloat16())
    assert same.mutual_information.dtype == torch.float64
    assert same.mutual_information.item() == pytest.approx(0.0, abs=1e-14)
    assert same.prob_var.item() == same.logit_var.item() == 0.0
    opposite = sample_moments(torch.tensor([[-800.0], [800.0]]))
    assert opposite.mutual_information.item() == pytest.approx(math.log(2), abs=1e-15)


@given(logits_of_passes)
def test_the_moments_are_those_of_all_passes_at_once(logits: list[list[float]]) -> None:
    logits_SB = np.array(logits)
    probs_SB = 1 / (1 + np.exp(-logits_SB))
    result = sample_moments(torch.from_numpy(logits_SB))
    assert result.num_passes == len(logits)
    np.testing.assert_allclose(result.prob_mean, probs_SB.mean(0), atol=1e-12)
    np.testing.assert_allclose(result.prob_var, probs_SB.var(0), atol=1e-12)
    np.testing.assert_allclose(result.logit_mean, logits_SB.mean(0), atol=1e-11)
    np.testing.assert_allclose(result.logit_var, logits_SB.var(0), rtol=1e-7, atol=1e-9)
    both_SB2 = np.stack([probs_SB, 1 - probs_SB], -1)
    direct = entropy(both_SB2.mean(0), axis=-1) - entropy(both_SB2, axis=-1).mean(0)
    np.testing.assert_allclose(result.mutual_information, direct, atol=1e-9)


def test_tiny_variances_keep_their_digits() -> None:
    logits_S = 30 + 1e-7 * torch.arange(5, dtype=torch.float64)
    assert sample_moments(logits_S[:, None]).logit_var.item() == pytest.approx(2e-14, rel=1e-6)


def test_halves_are_the_even_and_the_odd_samples() -> None:
    torch.manual_seed(0)
    samples = torch.randn(5, 7)
    found = sample_moments(samples).half_information
    assert found is not None
    for half, expected in zip(found, (samples[::2], samples[1::2]), strict=True):
        torch.testing.assert_close(half, sample_moments(expected).mutual_information)
    assert sample_moments(samples[:3]).half_information is None  # one of the halves would have no spread
