"""Do intervals of few judged pools and a judge cover, and how much shorter are they?

    python benchmarks/judged.py                                       made values with a judge of known correlation
    python benchmarks/judged.py --run runs/default/A --judge runs/default/B     test pools of two runs on the same data

Judged pools and 1,000 others are drawn `--times` times, from a distribution or, with replacement, from the test pools
of a run, whose labels are read for the judged ones only; another run's scores are the judge. Lengths are fractions of
those without the judge, *PPI++* is its normal interval with tuned λ. Of made values, a row has the lowest and highest
fraction of ten kinds: R@1 of 0.5, 0.7 and 0.9, and MAP where R@1 is 0.4 and 0.8, with two kinds of judges each.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from icalib.core.run_folder import RunFolder
from icalib.metrics.catalogue import find_metric
from icalib.metrics.judged import expected_values, infer
from icalib.metrics.pairs import FloatArray, PoolScores, check_same_pools, pool_softmax, sums_to_1
from icalib.score_files.calibrator import as_logit, detected_scale

NUM_OTHERS = 1000
NUM_JUDGED = (30, 50, 100, 200)
NUM_CANDIDATES = 10
RECIPROCALS = 1 / np.arange(1, NUM_CANDIDATES + 1)
CORRELATIONS = (0.0, 0.4, 0.6, 0.8)

Draw = Callable[[np.random.Generator, int], tuple[FloatArray, FloatArray]]
"""Values of some pools, and what a judge expects of them."""


class Source(NamedTuple):
    """Where values come from, and their mean."""

    draw: Draw
    mean: float


class Row(NamedTuple):
    """Fractions of intervals that cover, and mean lengths as fractions of those without the judge."""

    covers: float
    covers_alone: float
    covers_normal: float
    length: float
    helps: float


def measured(source: Source, num_judged: int, times: int) -> Row:
    rng, rows = np.random.default_rng(num_judged), list[list[float]]()
    for _ in range(times):
        value, judge = source.draw(rng, num_judged + NUM_OTHERS)
        found = infer(value[:num_judged], judge[:num_judged], judge)
        one, alone = found.estimate, found.alone
        low, high = normal_interval(value[:num_judged], judge[:num_judged], judge[num_judged:])
        covers = [
            low <= source.mean <= high for low, high in ((one.low, one.high), (alone.low, alone.high), (low, high))
        ]
        rows.append([*covers, one.high - one.low, alone.high - alone.low, found.helps])
    covers, covers_alone, covers_normal, length, length_alone, helps = np.mean(rows, axis=0)
    return Row(covers, covers_alone, covers_normal, length / length_alone, helps)


def normal_interval(value_J: FloatArray, judge_J: FloatArray, judge_N: FloatArray) -> tuple[float, float]:
    """PPI++'s interval of a mean, as ppi-python computes it: λ from 0 to 1, variances without degrees of freedom."""
    ratio = len(value_J) / len(judge_N)
    covariance = np.mean((value_J - value_J.mean()) * (judge_J - judge_J.mean()))
    tuned = np.clip(covariance / ((1 + ratio) * np.var(np.append(judge_J, judge_N), ddof=1)), 0, 1)
    center = tuned * judge_N.mean() + np.mean(value_J - tuned * judge_J)
    half = 1.96 * np.sqrt(np.var(tuned * judge_N) / len(judge_N) + np.var(value_J - tuned * judge_J) / len(value_J))
    return center - half, center + half


def made_groups() -> dict[str, list[Source]]:
    groups: dict[str, list[Source]] = {}
    for correlation in CORRELATIONS:
        ones = [(first_ranked(right), np.eye(NUM_CANDIDATES)[0]) for right in (0.5, 0.7, 0.9)]
        ranks = [(reciprocal_ranks(right), RECIPROCALS) for right in (0.4, 0.8)]
        groups[f"judge with correlation {correlation}"] = [
            *(probable(right, correlation) for right in (0.5, 0.7, 0.9)),
            *(noisy(values, correlation) for values, _ in ranks),
            *(choosing(values, chance, correlation) for values, chance in [*ones, *ranks]),
        ]
    return groups


Values = Callable[[np.random.Generator, int], FloatArray]


def first_ranked(right: float) -> Values:
    return lambda rng, number: (rng.random(number) < right).astype(float)


def reciprocal_ranks(right: float) -> Values:
    """1/rank: a wrong first candidate leaves the right one at rank r with a probability that falls as 1/r."""
    probs = np.append(right, (1 - right) * RECIPROCALS[1:] / RECIPROCALS[1:].sum())
    return lambda rng, number: rng.choice(RECIPROCALS, size=number, p=probs)


def probable(right: float, correlation: float) -> Source:
    """A judge of probabilities: Beta around 0.5 ± half a distance, by whether the value is 1."""

    def correlation_of(distance: float) -> float:
        between = distance**2 * right * (1 - right)
        within = (0.25 - distance**2 / 4) / 3
        return float(np.sqrt(between / (between + within)))

    distance = brentq(lambda one: correlation_of(one) - correlation, 0, 1) if correlation else 0.0

    def draw(rng: np.random.Generator, number: int) -> tuple[FloatArray, FloatArray]:
        value = first_ranked(right)(rng, number)
        mean = 0.5 + distance * (value - 0.5)
        return value, rng.beta(2 * mean, 2 * (1 - mean))

    return Source(draw, right)


def choosing(values: Values, chance: FloatArray, correlation: float) -> Source:
    """A judge who knows the right candidate at times, and else chooses one at random, with the values `chance`."""

    def judged(knows: float, rng: np.random.Generator, number: int) -> tuple[FloatArray, FloatArray]:
        value = values(rng, number)
        return value, np.where(rng.random(number) < knows, value, rng.choice(chance, size=number))

    def difference(knows: float) -> float:
        return np.corrcoef(*judged(knows, np.random.default_rng(0), 200_000))[0, 1] - correlation

    knows = brentq(difference, 0, 1) if correlation else 0.0
    return Source(lambda rng, number: judged(knows, rng, number), mean_of(values))


def noisy(values: Values, correlation: float) -> Source:
    """A judge whose expectations are the values with normal noise."""
    noise = values(np.random.default_rng(0), 1_000_000).std() * np.sqrt(1 / correlation**2 - 1) if correlation else 1.0

    def draw(rng: np.random.Generator, number: int) -> tuple[FloatArray, FloatArray]:
        value = values(rng, number)
        return value, (value if correlation else 0.0) + noise * rng.standard_normal(number)

    return Source(draw, mean_of(values))


def mean_of(values: Values) -> float:
    return float(values(np.random.default_rng(0), 4_000_000).mean())


def run_groups(run: Path, judge: Path) -> dict[str, list[Source]]:
    """Test pools of a run, drawn with replacement, and another run's scores of them, as the command reads them."""
    groups: dict[str, list[Source]] = {}
    scores, judging = (PoolScores.from_predictions(RunFolder.open(path).predictions("test")) for path in (run, judge))
    check_same_pools([scores, judging])
    sizes = scores.sizes()
    prob = judging.prob
    if not sums_to_1(prob, sizes):
        prob = pool_softmax(as_logit(prob, detected_scale(prob)), sizes)
    best = prob == np.repeat(np.maximum.reduceat(prob, scores.offsets[:-1]), sizes)
    best_prob = best / np.repeat(scores.pool_sum(best), sizes)
    for metric in map(find_metric, ("R@1", "MAP")):
        assert metric.per_pool is not None
        value = metric.per_pool(scores)
        for choice, weight in (("probabilities", prob), ("best candidate", best_prob)):
            expected = expected_values(metric, scores, weight)

            def draw(
                rng: np.random.Generator, number: int, value: FloatArray = value, expected: FloatArray = expected
            ) -> tuple[FloatArray, FloatArray]:
                drawn = rng.integers(len(value), size=number)
                return value[drawn], expected[drawn]

            correlation = np.corrcoef(value, expected)[0, 1]
            name = f"{metric.name} {value.mean():.3f}, {choice} of {judge.name}, correlation {correlation:.2f}"
            groups[name] = [Source(draw, float(value.mean()))]
    return groups


def main() -> None:
    """Print a row for each source and number of judged pools."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="finished run whose test pools are judged")
    parser.add_argument("--judge", type=Path, help="finished run on the same pools, whose scores are the judge")
    parser.add_argument("--times", type=int, default=4000, help="draws of each row; default: 4000")
    parser.add_argument("--judged", type=int, nargs="+", default=NUM_JUDGED, help="numbers of judged pools")
    options = parser.parse_args()
    groups = run_groups(options.run, options.judge) if options.run else made_groups()
    headings = ["values", "judged", "covers", "judged pools alone", "PPI++", "length", "judge helps"]
    for cells in (headings, ["---"] * len(headings)):
        print(f"| {' | '.join(cells)} |")
    for num_judged in options.judged:
        for name, sources in groups.items():
            found = [measured(source, num_judged, options.times) for source in sources]
            cells = [_span([100 * one for one in ones], ".1f", " %") for ones in list(zip(*found, strict=True))[:3]]
            length = _span([one.length for one in found], ".2f")
            helps = _span([100 * one.helps for one in found], ".0f", " %")
            print(f"| {name} | {num_judged} | {' | '.join([*cells, length, helps])} |", flush=True)


def _span(values: Sequence[float], form: str, unit: str = "") -> str:
    low, high = format(min(values), form), format(max(values), form)
    return f"{low}{unit}" if low == high else f"{low} to {high}{unit}"


if __name__ == "__main__":
    main()
