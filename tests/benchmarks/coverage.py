"""Do the guarantees hold on real dialogues? The test pools of finished runs are split at random, many times.

    python tests/benchmarks/coverage.py runs/default/bi-encoder-mine-0.1-s1 ... [--splits 200] [--fraction 0.5]

One part of a run's test pools is what promises are tested on and answer sets are fitted on, the other part checks
them. Splits are of pools, and of dialogues: pools of a dialogue are alike, and the questions of tomorrow come from
other dialogues. Three tables:

- Promises: in how many splits more than α of the answers in the checking part are wrong (*broken*; at most 1 −
  confidence is allowed, as far as the checking part is large enough to tell: its own error rate has chance, too), in
  how many no threshold could be promised, how many questions are answered, and how many of them wrongly.
- Sets: how often they contain a right candidate, over all splits, and their size.
- Exchangeability: how often the test warns at two levels although nothing has changed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from icalib.core.run_folder import RunFolder
from icalib.data.pools import as_pools, iter_pools
from icalib.metrics.conformal import answer_sets, fit_conformal
from icalib.metrics.exchangeability import shift_test
from icalib.metrics.pairs import PoolScores
from icalib.metrics.ranking import TopCandidate, top_candidate
from icalib.metrics.risk_control import control_risk
from icalib.pipeline.inference import FinishedRun

ERRORS = (0.05, 0.1, 0.2, 0.3, 0.5)
COVERAGES = (0.8, 0.9, 0.95)
LEVELS = (0.01, 0.1)
CONFIDENCE = 0.9

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Run:
    """Scores of a finished run: its validation pools, its test pools, and the dialogue [B] of each test pool."""

    name: str
    validation: PoolScores
    test: PoolScores
    dialogue: npt.NDArray[np.object_]

    @classmethod
    def open(cls, path: Path) -> Run:
        """Read the predictions of a run, and the dialogues from its pool folder."""
        folder = RunFolder.open(path)
        test = PoolScores.from_predictions(folder.predictions("test"))
        pools = iter_pools(FinishedRun.open(path).settings.data, "test")
        dialogues = {pool.pool_id: pool.dialog_id for batch in pools for pool in as_pools(batch)}
        return cls(
            folder.name,
            PoolScores.from_predictions(folder.predictions("validation")),
            test,
            np.array([dialogues[name] for name in test.pool_ids], dtype=object),
        )

    def splits(self, by: str, number: int, fraction: float) -> Iterator[tuple[Indices, Indices]]:
        """Yield the pools of both parts of each split, in ascending order."""
        groups = np.arange(self.test.num_pools) if by == "pool" else np.unique(self.dialogue, return_inverse=True)[1]
        for seed in range(number):
            order = np.random.default_rng(seed).permutation(groups.max() + 1)
            first = np.isin(groups, order[: round(fraction * len(order))])
            yield np.flatnonzero(first), np.flatnonzero(~first)


def main() -> None:
    """Print the tables of some runs."""
    options = _options()
    runs = [Run.open(path) for path in options.runs]
    for by in ("pool", "dialogue"):
        print(f"\n## Splits by {by}: {options.splits}, {options.fraction:g} of them calibrate")
        _table(
            f"Promises at confidence {CONFIDENCE:g}",
            ["run", "pools", "α", "broken", "no promise", "answered", "wrong", "wrong, worst split"],
            [row for run in runs for row in _promises(run, by, options)],
        )
        _table(
            "Answer sets",
            ["run", "pools", "coverage stated", "coverage found", "sd over splits", "size"],
            [row for run in runs for row in _sets(run, by, options)],
        )
        _table(
            "Exchangeability test, nothing changed",
            ["run", "pools", "questions", *(f"p < {level:g}" for level in LEVELS)],
            [row for run in runs for row in _alarms(run, by, options)],
        )


def _promises(run: Run, by: str, options: argparse.Namespace) -> Iterator[list[str]]:
    top, others = top_candidate(run.test), top_candidate(run.validation)
    for max_error in ERRORS:
        errors: list[float] = []
        answered: list[float] = []
        for first, second in run.splits(by, options.splits, options.fraction):
            found = control_risk(_of(top, first), others, max_error, CONFIDENCE)
            check = _of(top, second)
            above = check.prob >= (2.0 if found.threshold is None else found.threshold)
            answered.append(float(above.mean()))
            errors.append(float((check.hit[above] < 1).mean()) if above.any() else 0.0)
        promised = np.array(answered) > 0
        yield [
            run.name,
            f"{run.test.num_pools}",
            f"{max_error:g}",
            f"{np.mean(np.array(errors) > max_error):.1%}",
            f"{1 - promised.mean():.0%}",
            f"{np.mean(answered):.0%}",
            f"{np.mean(np.array(errors)[promised]):.1%}" if promised.any() else "–",
            f"{max(errors):.1%}",
        ]


def _sets(run: Run, by: str, options: argparse.Namespace) -> Iterator[list[str]]:
    for coverage in COVERAGES:
        covered: list[float] = []
        size: list[float] = []
        for first, second in run.splits(by, options.splits, options.fraction):
            check = taken(run.test, second)
            in_set = answer_sets(check, fit_conformal(taken(run.test, first), coverage))
            holds = check.pool_sum(in_set & (check.label == 1)) > 0
            covered.append(float(holds[check.answerable].mean()))
            size.append(float(check.pool_sum(in_set).mean()))
        yield [
            run.name,
            f"{run.test.num_pools}",
            f"{coverage:g}",
            f"{np.mean(covered):.3f}",
            f"{np.std(covered):.3f}",
            f"{np.mean(size):.1f} of {run.test.sizes().mean():.0f}",
        ]


def _alarms(run: Run, by: str, options: argparse.Namespace) -> Iterator[list[str]]:
    for number in (100, run.test.num_pools):
        p_values: list[float] = []
        sizes: list[int] = []
        for first, second in run.splits(by, options.splits, options.fraction):
            questions = (
                second[:number] if by == "dialogue" else np.sort(np.random.default_rng(0).permutation(second)[:number])
            )
            sizes.append(len(questions))
            p_values.append(shift_test(taken(run.test, questions), taken(run.test, first)).p_value)
        rates = [f"{np.mean(np.array(p_values) < level):.1%}" for level in LEVELS]
        yield [run.name, f"{run.test.num_pools}", f"{np.mean(sizes):.0f}", *rates]


def taken(scores: PoolScores, chosen: Indices) -> PoolScores:
    """Return some pools, in ascending order."""
    pairs = np.isin(scores.pool, chosen)
    return PoolScores(
        pool_ids=tuple(scores.pool_ids[index] for index in chosen),
        logit=scores.logit[pairs],
        prob=scores.prob[pairs],
        label=scores.label[pairs],
        offsets=np.concatenate([[0], np.cumsum(np.diff(scores.offsets)[chosen])]),
    )


def _of(top: TopCandidate, chosen: Indices) -> TopCandidate:
    return TopCandidate(top.prob[chosen], top.hit[chosen])


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    print(f"\n{title}\n")
    for cells in (columns, ["---"] * len(columns), *rows):
        print(f"| {' | '.join(cells)} |")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="finished runs whose pool folders still exist")
    parser.add_argument("--splits", type=int, default=200, help="random splits; default: 200")
    parser.add_argument("--fraction", type=float, default=0.5, help="fraction that calibrates; default: 0.5")
    return parser.parse_args()


if __name__ == "__main__":
    main()
