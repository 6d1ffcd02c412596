"""Pólya–Gamma sampling: speed and truth of the draws, beside the polyagamma package and a truncated sum."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import torch
from common import Ratio, alternate, print_table
from polyagamma import polyagamma_cdf, random_polyagamma
from scipy import stats

from icalib.inference import polya_gamma

NUM_DRAWS = 40_000
NUM_GAMMAS = 200
ROUNDS = 7
TILTS = (0.0, 1.0, 3.2, 12.0, 40.0)
EXACT, SERIES, PACKAGE, SUM = "icalib exact", "icalib series, 64 terms", "polyagamma", f"sum of {NUM_GAMMAS} gammas"

Sampler = Callable[[torch.Tensor], torch.Tensor]


def samplers() -> dict[str, Sampler]:
    """The contestants: from tilts to draws."""
    generator, numbers = torch.Generator().manual_seed(1), np.random.default_rng(1)

    def truncated_sum(c: torch.Tensor) -> torch.Tensor:
        k = torch.arange(1, NUM_GAMMAS + 1, dtype=c.dtype)
        rates = 2 * math.pi**2 * (k - 0.5) ** 2 + c[:, None] ** 2 / 2
        return (torch.empty_like(rates).exponential_(generator=generator) / rates).sum(-1)

    return {
        EXACT: lambda c: polya_gamma.sample(c, generator=generator),
        SERIES: lambda c: polya_gamma.sample(c, generator=generator, method="series"),
        PACKAGE: lambda c: torch.from_numpy(random_polyagamma(1.0, c.numpy(), random_state=numbers)),
        SUM: truncated_sum,
    }


def main() -> None:
    """Draw in turn, for logits as Gibbs chains have them."""
    torch.set_num_threads(1)  # the package has one
    c = 3 * torch.randn(NUM_DRAWS, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    contestants = samplers()

    def speed(draw: Sampler) -> float:
        started = time.thread_time()
        draw(c)
        return NUM_DRAWS / (time.thread_time() - started) / 1e6

    figures = alternate({name: lambda draw=draw: speed(draw) for name, draw in contestants.items()}, ROUNDS)
    pairs = [(EXACT, PACKAGE), (SERIES, PACKAGE), (EXACT, SUM), (SERIES, SUM)]
    title = f"{NUM_DRAWS} draws from PG(1, c), c ~ N(0, 3²), one thread"
    print_table(title, "million draws/CPU s", figures, [Ratio(ours, other) for ours, other in pairs])

    print(f"\nKolmogorov–Smirnov p-values of {NUM_DRAWS} draws, c = {', '.join(map(str, TILTS))}")
    for name, draw in contestants.items():
        samples = (draw(torch.full((NUM_DRAWS,), tilt, dtype=torch.float64)).numpy() for tilt in TILTS)
        tests = [stats.kstest(x, polyagamma_cdf, args=(1, tilt)) for x, tilt in zip(samples, TILTS, strict=True)]
        print(f"  {name:<46}" + "  ".join(f"{test.pvalue:8.2g}" for test in tests), flush=True)


if __name__ == "__main__":
    main()
