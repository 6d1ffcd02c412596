"""What results say: at most three sentences and some warnings above the tables.

A sentence never goes further than its table: "beyond chance" is a paired test over pools and seeds with p below 0.05
after Holm's correction, and the best method is the one with the largest mean of those that rank better than chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import dropwhile
from math import inf
from statistics import fmean
from typing import final

import pyarrow.compute as pc

from icalib.calibration.post_hoc import POST_HOC, post_hoc_tag
from icalib.core.errors import DataError
from icalib.core.run_folder import RunFolder
from icalib.core.run_tables import RoundSummary
from icalib.metrics.significance import Interval
from icalib.reports.comparison import (
    CANDIDATES_ONLY,
    MethodRow,
    at_fraction,
    format_difference,
    format_fraction,
    format_share,
    format_value,
    method_rows,
    run_results,
)
from icalib.reports.paired_tests import MethodTest, paired_tests

DECIDED_BY = "MAP"
"""The metric by which methods are compared: of those with values of single pools, the least noisy."""
TEACHERS: Mapping[str, str] = {"tsst": "bert", "icast": "icast-teacher"}
"""The method that differs from a self-trained one in its pseudo labels alone."""
_CONTROL = "regime.control=true"  # trains as long as a self-trained one, without pseudo labels
USABLE_ECE = 0.05
"""Largest upper end of the intervals of ECE and ECE_top1 at which probabilities are called usable as they are; those of
best candidates are not where the lower end of ECE_top1's is above it.
"""


@final
@dataclass(frozen=True)
class MethodFacts:
    """One method over its seeds."""

    label: str
    is_trained: bool
    ranks: bool
    num_seeds: int
    means: Mapping[str, float]  # test metrics, post-hoc ones (`ECE@platt`) too
    intervals: Mapping[str, Interval] = field(default_factory=dict)  # bootstrap ones of ECE and ECE_top1, if known
    recall_interval: Interval | None = None  # Wilson's of R@1
    rounds: tuple[RoundSummary, ...] = ()  # of all seeds

    @property
    def name(self) -> str:
        """The method's name without the settings of a variant."""
        return self.label.partition("@")[0]

    @property
    def without_pseudo_labels(self) -> tuple[str, ...]:
        """What differs from it in its pseudo labels alone, its control first; none if it isn't self-trained."""
        if self.name not in TEACHERS:
            return ()
        control = f"{self.label}{',' if '@' in self.label else '@'}{_CONTROL}"
        return control, TEACHERS[self.name] + self.label.removeprefix(self.name)

    @property
    def level(self) -> str:
        """Its values in words."""
        return ", ".join(
            f"{name} {format_value(self.means[name])}" for name in (DECIDED_BY, "R@1") if name in self.means
        )

    def __str__(self) -> str:
        return self.label


@final
@dataclass(frozen=True)
class Verdict:
    """Sentences to begin with, and warnings."""

    sentences: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    compares: bool = True
    """False of runs that were tested on other pools: none of them is the best."""


def verdict_of(runs: Sequence[RunFolder], tests: Sequence[MethodTest] | None = None) -> Verdict:
    """Return what some runs on one pool set say; each labelled fraction is a comparison of its own.

    In each are the methods that learn from no labels, too. `tests` are the paired tests of all of them, if they are
    known already: Holm's correction is over all fractions, as in the table of tests. Of runs that were not tested on
    the same pools it says that alone.
    """
    rows = method_rows(run_results(runs))
    fractions = sorted({row.labelled for row in rows if row.labelled is not None})
    try:
        if tests is None:
            tests = paired_tests({row.label: row.runs for row in rows})
    except DataError as error:
        return refusal(error)
    if len(fractions) < 2:
        return verdict([_facts(row) for row in rows], tests)
    said = [(fraction, verdict(*_at(fraction, rows, tests))) for fraction in fractions]
    return Verdict(
        tuple(f"{format_fraction(fraction)} labelled: {' '.join(part.sentences)}" for fraction, part in said),
        tuple(_together([(format_fraction(fraction), part.warnings) for fraction, part in said])),
    )


def _at(
    fraction: float, rows: Sequence[MethodRow], tests: Sequence[MethodTest]
) -> tuple[list[MethodFacts], list[MethodTest]]:
    """Return the methods that are compared with a labelled fraction, and their tests, without it in their labels."""
    chosen = [row for row in rows if row.labelled in (None, fraction)]
    names = {row.label: row.label.removesuffix(at_fraction("", fraction)) for row in chosen}
    facts = [_facts(replace(row, label=names[row.label])) for row in chosen]
    between = [test for test in tests if test.first in names and test.second in names]
    return facts, [test._replace(first=names[test.first], second=names[test.second]) for test in between]


def refusal(error: DataError) -> Verdict:
    """Return what is said of runs that can't be compared, by the error of their paired tests."""
    return Verdict((), (f"Not compared: {error.found}. {error.cure}",), compares=False)


def _together(said: Sequence[tuple[str, Sequence[str]]]) -> Iterator[str]:
    """Yield warnings of comparisons by labelled fraction, once each, with the fractions unless all have it."""
    for warning in dict.fromkeys(warning for _, warnings in said for warning in warnings):
        fractions = [fraction for fraction, warnings in said if warning in warnings]
        yield warning if len(fractions) == len(said) else f"{' and '.join(fractions)} labelled: {warning}"


def _facts(row: MethodRow) -> MethodFacts:
    runs = row.runs
    names = {name for result in row.results for name in result["test"]}
    return MethodFacts(
        label=row.label,
        is_trained=any(set(run.training()["stage"].to_pylist()) - {"domain_pretraining"} for run in runs),
        ranks=row.ranks,
        num_seeds=row.num_seeds,
        means={name: mean for name in names if (mean := row.mean(name)) is not None},
        intervals={name: found for name in ("ECE", "ECE_top1") if (found := mean_interval(runs, name)) is not None},
        recall_interval=mean_interval(runs, "R@1"),
        rounds=tuple(summary for run in runs for summary in run.round_summaries()),
    )


def mean_interval(runs: Sequence[RunFolder], metric: str) -> Interval | None:
    """Return the bootstrap interval of a test metric, its ends averaged over the runs; None where there is none."""
    tables = [run.metrics().filter((pc.field("split") == "test") & (pc.field("metric") == metric)) for run in runs]
    ends = [(table["low"][0].as_py(), table["high"][0].as_py()) for table in tables if table.num_rows]
    return Interval(*(fmean(side) for side in zip(*ends, strict=True))) if ends else None


def verdict(methods: Sequence[MethodFacts], tests: Sequence[MethodTest]) -> Verdict:
    """Return what the results of some methods on the same pools say; `tests` are empty if they can't be compared."""
    compared = [one for one in methods if one.name != CANDIDATES_ONLY and DECIDED_BY in one.means]
    ranked = sorted(compared, key=lambda one: -one.means[DECIDED_BY])
    if not ranked:
        return Verdict(())
    from_best = list(dropwhile(lambda one: not one.ranks, ranked))
    if not from_best:
        said = f"No method ranks better than chance: the best, {ranked[0]}, has {ranked[0].level}."
        return Verdict((said,), tuple(_warnings(methods)))
    found = {(one.first, one.second): one for one in tests if one.metric == DECIDED_BY}
    found |= {(one.second, one.first): one.turned for one in found.values()}
    sentences = (_ranking(from_best, found), _learning(ranked, found), _probabilities(from_best[0]))
    return Verdict(tuple(filter(None, sentences)), tuple(_warnings(methods)))


_Tests = Mapping[tuple[str, str], MethodTest]


def _ranking(ranked: Sequence[MethodFacts], tests: _Tests) -> str:
    best, others = ranked[0], ranked[1:]
    if not others:
        return f"{best} ranks better than chance: {best.level}."
    outcomes = [test for one in others if (test := tests.get((best.label, one.label)))]
    groups = {
        "beyond chance": [test.second for test in outcomes if test.outcome != "chance"],
        "perhaps by chance": [test.second for test in outcomes if test.outcome == "chance"],
    }
    parts = [f"{words} against {_listed(labels)}" for words, labels in groups.items() if labels]
    return f"{best} ranks best ({best.level}), {', '.join(parts) or 'but that was not tested'}."


def _learning(ranked: Sequence[MethodFacts], tests: _Tests) -> str:
    """Say whether training paid against the best method without labels, and self-training against its teacher."""
    by_label = {one.label: one for one in ranked}
    trained = next((one for one in ranked if one.is_trained), None)
    free = next((one for one in ranked if not one.is_trained), None)
    students = ((one, next(filter(None, map(by_label.get, one.without_pseudo_labels)), None)) for one in ranked)
    student, other = next(((one, other) for one, other in students if one.rounds and other), (None, None))
    parts = [_paid("Training on labels", trained, free, tests), _paid("self-training", student, other, tests)]
    text = "; ".join(filter(None, parts))
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _paid(what: str, learner: MethodFacts | None, other: MethodFacts | None, tests: _Tests) -> str:
    test = tests.get((learner.label, other.label)) if learner and other else None
    if learner is None or test is None:
        return ""
    measured = f"({learner} against {other}: {DECIDED_BY} {format_difference(test.difference)})"
    words = {"better": "pays", "worse": "did harm", "chance": "has not paid beyond chance"}
    return f"{what} {words[test.outcome]} {measured}"


def _probabilities(best: MethodFacts) -> str:
    """Say whether the probabilities of all pairs and of each pool's best candidate can be used, or what is against it.

    It is the first metric whose interval ends above USABLE_ECE.
    """
    if "ECE" not in best.intervals:
        return ""
    above = [metric for metric, found in best.intervals.items() if found.high > USABLE_ECE]
    metric = above[0] if above else "ECE"
    interval = best.intervals[metric]
    low, high = format_value(interval.low), format_value(interval.high)
    measured = f"({metric} {format_value(best.means[metric])}, 95 % interval {low}–{high})"
    which = f"of {best}" if metric == "ECE" else f"of the best candidate of each pool by {best}"
    recall = best.recall_interval
    if not above and recall is not None and recall.high - recall.low > 2 * USABLE_ECE:  # so may probabilities be off
        low, high = format_value(recall.low), format_value(recall.high)
        measured = f"(R@1 {format_value(best.means['R@1'])}, 95 % interval {low}–{high})"
        return f"Whether the probabilities {which} can be used takes more test pools to tell {measured}."
    if not above:
        return f"The probabilities {which} can be used as they are {measured}."
    if better := _calibrated(best, metric, interval.low):
        return f"Calibrate the probabilities {which} {measured}, by `--set calibration=NAME`: {_listed(better)}."
    if interval.low <= USABLE_ECE:
        return f"Whether the probabilities {which} can be used takes more test pools to tell {measured}."
    return f"The probabilities {which} can't be relied on {measured}; no calibrator is clearly better."


def _calibrated(best: MethodFacts, metric: str, below: float) -> list[str]:
    """Return calibrators with a smaller metric and a smaller NLL, as a lower ECE alone may come from a worse fit.

    None is chosen, since these are test pools.
    """
    return [
        f"{name} has {format_value(after)}"
        for name in POST_HOC
        if best.means.get(post_hoc_tag("NLL", name), inf) < best.means.get("NLL", 0.0)
        and (after := best.means.get(post_hoc_tag(metric, name), 1.0)) < below
    ]


def _warnings(methods: Sequence[MethodFacts]) -> Iterator[str]:
    for one in methods:
        rounds = [summary for summary in one.rounds if summary.num_pools_scored]
        if empty := sum(not summary.num_pools_selected for summary in rounds):
            yield f"{one}: {empty} of {len(rounds)} rounds selected no pool."
        right, base = (_mean_of_selected(one.rounds, name) for name in ("pool_accuracy", "base_accuracy"))
        if right is not None and base is not None and right < base:
            yield (
                f"{one}: {format_share(right)} of the pools that got pseudo labels are right, fewer than if every pool "
                f"had been taken ({format_share(base)})."
            )
    blind = [one for one in methods if one.name == CANDIDATES_ONLY]  # they should be at chance
    poor = [one.label for one in methods if not one.ranks and one not in blind]
    if poor and len(poor) + len(blind) < len(methods):  # otherwise a sentence says so
        yield f"No better than chance: {_listed(poor)}. Such calibration says nothing, and is never bold."
    highest = max((one.means.get("R@1", 0.0) for one in blind if one.ranks), default=0.0)
    if beaten := [one.label for one in methods if one not in blind and one.means.get("R@1", 1.0) < highest]:
        yield (
            f"These pools give right answers away: candidates-only, which never reads a context, has R@1 "
            f"{highest:.3f}, more than {_listed(beaten)}. A right answer is then recognised by its likeness to the "
            "other candidates. Prepare the dialogues again with --negatives neighbourhood or random, which hide it; "
            "wrong answers that the source has are replaced there, or left out of it."
        )
    if len(methods) > 1 and all(one.num_seeds == 1 for one in methods):
        yield "One seed each: another may change the order, `--seeds 3` shows how much."


def _mean_of_selected(rounds: Sequence[RoundSummary], name: str) -> float | None:
    """Return the mean of a fraction over the selected pools of all rounds; None where it isn't known."""
    known = [one for one in rounds if getattr(one, name) is not None and one.num_pools_selected]
    return fmean((getattr(one, name) for one in known), [one.num_pools_selected for one in known]) if known else None


def _listed(labels: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(labels[:-1]), labels[-1])))
