"""How often are promises about errors broken where their assumptions are? Simulated, since risks are known there.

    python benchmarks/promises.py [--times 2000] [--pools 800]

A promise assumes independent test pools that have not chosen the run. Here one of five equally good runs is chosen by
what it promises; and pools are drawn by dialogue, ten pools each, whose errors go together. Probabilities of best
candidates are those of a calibrated run, σ(N(1, 2²)), about two thirds of which are right.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import expit, ndtr

from icalib.metrics.pairs import FloatArray
from icalib.metrics.ranking import TopCandidate
from icalib.metrics.risk_control import RiskControl, control_risk

ERRORS = (0.05, 0.1, 0.2)
CONFIDENCE = 0.9
NUM_VALIDATION = 300
PER_DIALOGUE = 10
_POPULATION = 1_000_000


@dataclass(frozen=True)
class Case:
    """What is wrong with the draws of test pools."""

    name: str
    runs: int = 1
    """Runs of which the one that answers most is chosen."""
    likeness: float = 1.0
    """Correlation of the runs, in the probability of a pool and in whether the best candidate is right."""
    together: float = 0.0
    """Correlation (of a normal copula) of whether the best candidates of a dialogue's pools are right."""


CASES = (
    Case("one run, independent pools"),
    Case("chosen of five, correlation 0", runs=5, likeness=0.0),
    Case("chosen of five, correlation 0.8", runs=5, likeness=0.8),
    Case("errors of a dialogue, correlation 0.1", together=0.1),
    Case("errors of a dialogue, correlation 0.5", together=0.5),
    Case("errors of a dialogue, correlation 1", together=1.0),
)


def drawn(case: Case, number: int, rng: np.random.Generator) -> list[TopCandidate]:
    """Return the best candidates of `number` pools by each of the runs; P(right) is the probability in all of them."""

    def normal(common: FloatArray) -> FloatArray:
        return np.sqrt(case.likeness) * common + np.sqrt(1 - case.likeness) * rng.normal(size=(case.runs, number))

    dialogue = np.repeat(rng.normal(size=-(-number // PER_DIALOGUE)), PER_DIALOGUE)[:number]
    luck = np.sqrt(case.together) * dialogue + np.sqrt(1 - case.together) * rng.normal(size=number)
    probs = expit(1 + 2 * normal(rng.normal(size=number)))
    hits = ndtr(normal(luck)) < probs
    return [TopCandidate(prob, hit.astype(np.float64)) for prob, hit in zip(probs, hits, strict=True)]


def promised(case: Case, number: int, max_error: float, rng: np.random.Generator) -> RiskControl:
    """Return the promise of the run that answers most, on one draw of validation and test pools."""
    others, tested = drawn(case, NUM_VALIDATION, rng), drawn(case, number, rng)
    found = [control_risk(*both, max_error, CONFIDENCE) for both in zip(tested, others, strict=True)]
    return max(found, key=lambda one: one.coverage if one.threshold is not None else -1.0)


@cache
def population() -> tuple[FloatArray, FloatArray]:
    """Return the falling probabilities of a whole population, and the risk of answering its first 1, 2, … pools."""
    probs = np.sort(expit(1 + 2 * np.random.default_rng(0).normal(size=_POPULATION)))[::-1]
    return probs, np.cumsum(1 - probs) / np.arange(1, _POPULATION + 1)


def outcomes(case: Case, number: int, times: int) -> Iterator[str]:
    """Yield, for each largest fraction of wrong answers, the percentage of draws whose promise is broken."""
    probs, risks = population()
    for max_error in ERRORS:
        rng, broken = np.random.default_rng(1), 0
        for _ in range(times):
            found = promised(case, number, max_error, rng)
            if found.threshold is not None:
                broken += risks[np.searchsorted(-probs, -found.threshold, side="right") - 1] > max_error
        yield f"{broken / times:.1%}"


def main() -> None:
    """Print a table: a row a case, a column an α."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=2000, help="draws; default: 2000")
    parser.add_argument("--pools", type=int, default=800, help="test pools of a draw; default: 800")
    options = parser.parse_args()
    columns = ["", *(f"at most {error:.0%} wrong" for error in ERRORS)]
    rows = ([case.name, *outcomes(case, options.pools, options.times)] for case in CASES)
    for cells in (columns, ["---"] * len(columns), *rows):
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
