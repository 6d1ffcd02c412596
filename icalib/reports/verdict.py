"""What results say: at most three sentences and some warnings above the tables.

A sentence never goes further than its table: "beyond chance" is a paired test with p below 0.05 after Holm's
correction, and the best method is the one with the largest mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    format_difference,
    format_share,
    format_value,
    giveaway,
    method_rows,
)
from icalib.reports.paired_tests import SIGNIFICANT, MethodTest, paired_tests

DECIDED_BY = "MAP"
"""The metric by which methods are compared: of those with values of single pools, the least noisy."""
TEACHERS: Mapping[str, str] = {
    "tsst": "bert",
    "icast": "icast-teacher",
    "icast-no-gain": "icast-teacher",
    "icast-no-gain-no-calibration": "icast-teacher",
}
"""The method that differs from a self-trained one in its pseudo labels alone."""
USABLE_ECE = 0.05
"""Largest upper end of ECE's interval at which probabilities are called usable as they are."""


@final
@dataclass(frozen=True)
class MethodFacts:
    """One method's values over its seeds.

    Attributes:
        label: the method's name.
        is_trained: whether it learnt from labels.
        ranks: whether it ranks better than chance.
        num_seeds: number of runs.
        means: mean test metrics by name, post-hoc ones (`ECE@platt`) too.
        ece: bootstrap interval of ECE over pools, its ends averaged over the seeds; None where there is none.
        rounds: the rounds of self-training of all seeds.
        kept_start: whether every seed's training ended with its start.
    """

    label: str
    is_trained: bool
    ranks: bool
    num_seeds: int
    means: Mapping[str, float]
    ece: Interval | None = None
    rounds: tuple[RoundSummary, ...] = ()
    kept_start: bool = False

    @property
    def name(self) -> str:
        """The method's name without the settings of a variant."""
        return self.label.partition("@")[0]


@final
@dataclass(frozen=True)
class Verdict:
    """Sentences to begin with, and warnings."""

    sentences: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def verdict_of(runs: Sequence[RunFolder], tests: Sequence[MethodTest] | None = None) -> Verdict:
    """Return what some runs on one pool set say; each labelled fraction is a comparison of its own.

    Args:
        runs: finished runs on the same pools.
        tests: their paired tests, if there is one labelled fraction and they are known already.
    """
    by_fraction: dict[float, list[RunFolder]] = {}
    for run in runs:
        by_fraction.setdefault(float(run.result["labelled"]), []).append(run)
    if len(by_fraction) == 1:
        return _verdict_of(runs, tests)
    parts = {fraction: _verdict_of(members, None) for fraction, members in sorted(by_fraction.items())}
    return Verdict(
        tuple(f"{fraction:.2%} labelled: {' '.join(part.sentences)}" for fraction, part in parts.items()),
        tuple(dict.fromkeys(warning for part in parts.values() for warning in part.warnings)),
    )


def _verdict_of(runs: Sequence[RunFolder], tests: Sequence[MethodTest] | None) -> Verdict:
    rows = method_rows([run.result for run in runs])
    members = {row.label: [run for run in runs if run.result["method"] == row.label] for row in rows}
    if tests is None:
        try:
            tests = paired_tests(members) if len(members) > 1 else []
        except DataError:  # the tables say why
            tests = []
    return verdict([_facts(row, members[row.label]) for row in rows], tests)


def _facts(row: MethodRow, runs: Sequence[RunFolder]) -> MethodFacts:
    names = dict.fromkeys(name for result in row.results for name in result["test"])
    return MethodFacts(
        label=row.label,
        is_trained=any(set(run.training()["stage"].to_pylist()) - {"post_training"} for run in runs),
        ranks=row.ranks,
        num_seeds=row.num_seeds,
        means={name: mean for name in names if (mean := row.mean(name)) is not None},
        ece=mean_interval(runs, "ECE"),
        rounds=tuple(summary for run in runs for summary in run.round_summaries()),
        kept_start=all(run.kept_start for run in runs),
    )


def mean_interval(runs: Sequence[RunFolder], metric: str) -> Interval | None:
    """Return the bootstrap interval of a test metric, its ends averaged over the runs; None where there is none."""
    tables = [run.metrics().filter((pc.field("split") == "test") & (pc.field("metric") == metric)) for run in runs]
    ends = [(table["low"][0].as_py(), table["high"][0].as_py()) for table in tables if table.num_rows]
    return Interval(*(fmean(side) for side in zip(*ends, strict=True))) if ends else None


def verdict(methods: Sequence[MethodFacts], tests: Sequence[MethodTest]) -> Verdict:
    """Return what the results of some methods on the same pools say.

    Args:
        methods: those of one table.
        tests: the paired tests of the table; empty where the methods can't be compared.
    """
    compared = [one for one in methods if one.label != CANDIDATES_ONLY and DECIDED_BY in one.means]
    ranked = sorted(compared, key=lambda one: -one.means[DECIDED_BY])
    if not ranked:
        return Verdict(())
    best = ranked[0]
    if not best.ranks:
        return Verdict((f"No method ranks better than chance: the best, {best.label}, has {_level(best)}.",))
    outcomes = {(one.metric, one.first, one.second): one for one in tests}
    sentences = (_best(ranked, outcomes), _learning(ranked, outcomes), _probabilities(best))
    return Verdict(tuple(filter(None, sentences)), tuple(_warnings(methods)))


_Tests = Mapping[tuple[str, str, str], MethodTest]


def _difference(tests: _Tests, first: MethodFacts, second: MethodFacts) -> tuple[float, bool] | None:
    """Return the difference first − second in `DECIDED_BY`, and whether it is beyond chance; None if not tested."""
    for sign, pair in ((1, (first, second)), (-1, (second, first))):
        test = tests.get((DECIDED_BY, pair[0].label, pair[1].label))
        if test is not None:
            return sign * test.difference, test.p_holm < SIGNIFICANT
    return None


def _best(ranked: Sequence[MethodFacts], tests: _Tests) -> str:
    best, others = ranked[0], ranked[1:]
    if not others:
        return f"{best.label} ranks better than chance: {_level(best)}."
    outcomes = {one.label: _difference(tests, best, one) for one in others}
    beaten = [label for label, outcome in outcomes.items() if outcome and outcome[1]]
    alike = [label for label, outcome in outcomes.items() if outcome and not outcome[1]]
    parts = [f"beyond chance against {listed(beaten)}"] if beaten else []
    parts += [f"perhaps by chance against {listed(alike)}"] if alike else []
    return f"{best.label} ranks best ({_level(best)}), {', '.join(parts) or 'but that was not tested'}."


def _learning(ranked: Sequence[MethodFacts], tests: _Tests) -> str:
    """Return whether training paid against the best method without labels, and self-training against its teacher."""
    by_label = {one.label: one for one in ranked}
    trained = next((one for one in ranked if one.is_trained), None)
    free = next((one for one in ranked if not one.is_trained), None)
    student = next((one for one in ranked if one.rounds and TEACHERS.get(one.name) in by_label), None)
    parts = [_paid("Training on labels", trained, free, tests)]
    if student is not None:
        parts.append(_paid("self-training", student, by_label[TEACHERS[student.name]], tests))
    text = "; ".join(filter(None, parts))
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _paid(what: str, learner: MethodFacts | None, other: MethodFacts | None, tests: _Tests) -> str:
    outcome = _difference(tests, learner, other) if learner and other else None
    if learner is None or other is None or outcome is None:
        return ""
    difference, beyond_chance = outcome
    measured = f"({learner.label} against {other.label}: {DECIDED_BY} {format_difference(difference)})"
    if learner.kept_start and not learner.rounds:
        return f"{what} changed nothing, since no epoch was better on validation than the start {measured}"
    if not beyond_chance:
        return f"{what} has not paid beyond chance {measured}"
    return f"{what} {'pays' if difference > 0 else 'did harm'} {measured}"


def _probabilities(best: MethodFacts) -> str:
    ece = best.means.get("ECE")
    if ece is None or best.ece is None:
        return ""
    measured = f"ECE {format_value(ece)}, 95 % interval {format_value(best.ece.low)}–{format_value(best.ece.high)}"
    if best.ece.high <= USABLE_ECE:
        return f"The probabilities of {best.label} can be used as they are ({measured})."
    better = _better_calibrator(best)
    if better is None:
        return f"The probabilities of {best.label} can't be relied on ({measured}); no calibrator is clearly better."
    after = format_value(best.means[post_hoc_tag("ECE", better)])
    return f"Calibrate the probabilities of {best.label} ({measured}): `--set calibration={better}` has {after}."


def _better_calibrator(best: MethodFacts) -> str | None:
    """Return the calibrator with the lowest NLL, if it improves NLL, and ECE beyond its interval."""
    assert best.ece is not None
    found = {
        name: best.means[post_hoc_tag("NLL", name)]
        for name in POST_HOC
        if {post_hoc_tag("NLL", name), post_hoc_tag("ECE", name)} <= best.means.keys()
        and best.means[post_hoc_tag("ECE", name)] < best.ece.low
    }
    better = min(found, key=lambda name: found[name], default=None)
    return better if better is not None and found[better] < best.means.get("NLL", 0.0) else None


def _warnings(methods: Sequence[MethodFacts]) -> list[str]:
    found: list[str] = []
    for one in methods:
        if empty := sum(not summary.num_pools_selected for summary in one.rounds):
            found.append(f"{one.label}: {empty} of {len(one.rounds)} rounds selected no pool.")
        right, base = (_mean_of_selected(one.rounds, name) for name in ("pool_accuracy", "base_accuracy"))
        if right is not None and base is not None and right < base:
            found.append(
                f"{one.label}: {format_share(right)} of the pools that got pseudo labels are right, fewer than if "
                f"every pool had been taken ({format_share(base)})."
            )
    poor = [one.label for one in methods if not one.ranks and one.name != CANDIDATES_ONLY]  # which should be at chance
    if poor:
        found.append(f"No better than chance: {listed(poor)}. Such calibration says nothing, and is never bold.")
    if any(one.ranks for one in methods if one.name == CANDIDATES_ONLY):
        warning = giveaway({one.label: one.means.get("R@1") for one in methods})
        found += [warning] if warning else []
    if len(methods) > 1 and all(one.num_seeds == 1 for one in methods):
        found.append("One seed each: another may change the order, `--seeds 3` shows how much.")
    return found


def _mean_of_selected(rounds: Sequence[RoundSummary], name: str) -> float | None:
    """Return the mean of a fraction over the selected pools of all rounds; None where it isn't known."""
    values = [(getattr(one, name), one.num_pools_selected) for one in rounds]
    known = [(value, weight) for value, weight in values if value is not None and weight]
    return sum(value * weight for value, weight in known) / sum(weight for _, weight in known) if known else None


def _level(one: MethodFacts) -> str:
    return ", ".join(f"{name} {format_value(one.means[name])}" for name in (DECIDED_BY, "R@1") if name in one.means)


def listed(labels: Sequence[str]) -> str:
    """Return labels as an English list."""
    return labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} and {labels[-1]}"
