"""Inference from few judged pools beside ppi-python 0.2.3, whose numba and pandas are too much for a test environment.

y, f = values(seed, n + N, noise)
lam = np.cov(y[:n], f[:n])[0, 1] / np.var(f[:n], ddof=1) * N / (N + n)
ppi_py.ppi_mean_pointestimate(y[:n], f[:n], f[n:], lam=lam)            # same
ppi_py.ppi_mean_pointestimate(y[:n], f[:n], f[n:])                     # tuned
ppi_py.ppi_mean_ci(y[:n], f[:n], f[n:], alpha=0.05)                    # low, high
ppi_py.classical_mean_ci(y[:n], alpha=0.05)                            # low_alone, high_alone
"""

from __future__ import annotations

import numpy as np
import pytest

from icalib.metrics.judged import infer
from icalib.metrics.pairs import FloatArray


def values(seed: int, number: int, noise: float) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    value = (rng.random(number) < 0.7).astype(float)
    return value, np.clip(0.2 + 0.6 * value + noise * rng.standard_normal(number), 0, 1)


@pytest.mark.parametrize(
    ("seed", "num_judged", "num_others", "noise", "same", "tuned", "ends", "ends_alone"),
    [
        (1, 200, 800, 0.2, 0.7003952426251747, 0.7004562, (0.6595509, 0.7413616), (0.6311920, 0.7588080)),
        (2, 400, 1600, 0.5, 0.7076607890669799, 0.7076113, (0.6676644, 0.7475581), (0.6655321, 0.7544680)),
    ],
)
def test_a_mean_agrees_with_ppi_python(
    seed: int,
    num_judged: int,
    num_others: int,
    noise: float,
    same: float,
    tuned: float,
    ends: tuple[float, float],
    ends_alone: tuple[float, float],
) -> None:
    """To rounding with the same λ, to its noise with theirs; with many judged pools, normal intervals are Wilson's."""
    value, judge = values(seed, num_judged + num_others, noise)
    found = infer(value[:num_judged], judge[:num_judged], judge)
    assert found.estimate.value == pytest.approx(same, rel=1e-12)
    assert found.estimate.value == pytest.approx(tuned, abs=2e-4)
    assert (found.estimate.low, found.estimate.high) == pytest.approx(ends, abs=4e-3)
    assert (found.alone.low, found.alone.high) == pytest.approx(ends_alone, abs=4e-3)
