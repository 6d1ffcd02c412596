"""Do the guarantees hold on real dialogues? Promises and sets are fitted to random parts of a run's test pools.

    python benchmarks/coverage.py runs/default/bi-encoder-mine-0.1-s1 ... [--times 200] [--fraction 0.5]

Two experiments, each with pools and with dialogues as what is drawn: pools of a dialogue are alike, and the questions
of tomorrow come from other dialogues.

- *draws*: as many pools as a fraction of the test pools are drawn with replacement, and checked on all test pools.
  These are then the whole population, whose error rate is known: a promise may be broken in 1 − confidence of the
  draws.
- *splits*: one part calibrates, the other part checks. This is what a user would see, but the checking part has chance
  of its own: promises that hold look broken in up to 18 % of the splits in halves at a confidence of 90 %.

Two tables each: promises (*broken*: more than α of the checked answers are wrong) and answer sets. Before them, one of
the wrong answers among the most confident test pools, and one of how far errors of one dialogue go together.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from icalib.core.run_folder import RunFolder
from icalib.core.storage import local_path
from icalib.data.pools import as_pools, iter_pools
from icalib.metrics.conformal import answer_sets, fit_conformal
from icalib.metrics.pairs import PoolScores
from icalib.metrics.ranking import TopCandidate, top_candidate
from icalib.metrics.risk_control import control_risk
from icalib.metrics.selective import RankedPools, risk_coverage

ERRORS = (0.05, 0.1, 0.2, 0.3, 0.5)
COVERAGES = (0.8, 0.9, 0.95)
CONFIDENCE = 0.9
ANSWERED = tuple(tenth / 10 for tenth in range(1, 11))

Indices = npt.NDArray[np.int64]


class Experiment(NamedTuple):
    """How parts are made, and of what: `draws` or `splits`, by `pool` or `dialogue`."""

    how: str
    by: str


EXPERIMENTS = [Experiment(how, by) for how in ("draws", "splits") for by in ("pool", "dialogue")]


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
        pools = iter_pools(local_path(folder.config["data"]), "test")
        dialogues = {pool.pool_id: pool.dialog_id for batch in pools for pool in as_pools(batch)}
        return cls(
            folder.name,
            PoolScores.from_predictions(folder.predictions("validation")),
            test,
            np.array([dialogues[name] for name in test.pool_ids], dtype=object),
        )

    def parts(self, experiment: Experiment, options: argparse.Namespace) -> Iterator[tuple[Indices, Indices]]:
        """Yield the pools that calibrate and those that check, in ascending order."""
        every = np.arange(self.test.num_pools)
        groups = every if experiment.by == "pool" else np.unique(self.dialogue, return_inverse=True)[1]
        for seed in range(options.times):
            rng = np.random.default_rng(seed)
            number = round(options.fraction * (groups.max() + 1))
            drawn = rng.choice(groups.max() + 1, number, replace=experiment.how == "draws")
            times = np.bincount(drawn, minlength=groups.max() + 1)[groups]
            first = np.repeat(every, times)
            yield first, every if experiment.how == "draws" else every[times == 0]


def main() -> None:
    """Print the tables of some runs."""
    options = _options()
    runs = [Run.open(path) for path in options.runs]
    _table(
        "Wrong among the most confident",
        ["run", *(f"{fraction:.0%}" for fraction in ANSWERED)],
        [[run.name, *wrong_among_the_confident(run)] for run in runs],
    )
    _table(
        "Variance of the number of errors over that of independent ones, among the most confident",
        ["run", "pools", "dialogues", *(f"{fraction:.0%}" for fraction in ANSWERED)],
        [[run.name, *dependence(run)] for run in runs],
    )
    for experiment in EXPERIMENTS:
        print(f"\n## {experiment.how} by {experiment.by}: {options.times}, with {options.fraction:g} of the test pools")
        _table(
            f"Promises at confidence {CONFIDENCE:g}",
            ["run", "pools", "α", "broken", "no promise", "answered", "wrong"],
            [row for run in runs for row in promises(run, experiment, options)],
        )
        _table(
            "Answer sets",
            ["run", "pools", "coverage stated", "coverage found", "sd", "size"],
            [row for run in runs for row in sets(run, experiment, options)],
        )


def wrong_among_the_confident(run: Run) -> Iterator[str]:
    top = top_candidate(run.test)
    coverage, risk = risk_coverage(RankedPools.by(top.prob, 1 - top.hit))
    for fraction in ANSWERED:
        yield f"{risk[np.searchsorted(coverage, fraction - 1e-9)]:.1%}"


def dependence(run: Run) -> Iterator[str]:
    """Yield the numbers of pools and dialogues, and design effects: 1 if errors of one dialogue are independent."""
    top = top_candidate(run.test)
    dialogue = np.unique(run.dialogue, return_inverse=True)[1]
    yield from (f"{len(dialogue)}", f"{dialogue.max() + 1}")
    order = np.argsort(-top.prob, kind="stable")
    for fraction in ANSWERED:
        chosen = order[: round(fraction * len(order))]
        error = 1 - top.hit[chosen]
        binomial = len(error) * error.mean() * (1 - error.mean())
        sums = np.bincount(dialogue[chosen], error - error.mean())
        yield f"{(sums**2).sum() / binomial:.2f}" if binomial else "–"


def promises(run: Run, experiment: Experiment, options: argparse.Namespace) -> Iterator[list[str]]:
    top, others = top_candidate(run.test), top_candidate(run.validation)
    for max_error in ERRORS:
        errors: list[float] = []
        answered: list[float] = []
        for first, second in run.parts(experiment, options):
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
        ]


def sets(run: Run, experiment: Experiment, options: argparse.Namespace) -> Iterator[list[str]]:
    for coverage in COVERAGES:
        covered: list[float] = []
        size: list[float] = []
        for first, second in run.parts(experiment, options):
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


def taken(scores: PoolScores, chosen: Indices) -> PoolScores:
    """Return some pools, in ascending order; a pool may occur several times."""
    sizes = scores.sizes()[chosen]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    pairs = np.arange(offsets[-1]) + np.repeat(scores.offsets[chosen] - offsets[:-1], sizes)
    return PoolScores(
        pool_ids=tuple(scores.pool_ids[index] for index in chosen),
        logit=scores.logit[pairs],
        prob=scores.prob[pairs],
        label=scores.label[pairs],
        offsets=offsets,
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
    parser.add_argument("--times", type=int, default=200, help="draws, and splits; default: 200")
    parser.add_argument("--fraction", type=float, default=0.5, help="fraction that calibrates; default: 0.5")
    return parser.parse_args()


if __name__ == "__main__":
    main()
