"""What results say, in words: a few sentences and warnings above the tables, built from values alone.

`verdict_facts.py` reads the values from run folders. A sentence never goes further than its table: "beyond chance" is
a paired test with p below 0.05 after Holm's correction, and the best method is the one with the largest mean.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from icalib.calibration.post_hoc import POST_HOC, post_hoc_tag
from icalib.core.run_tables import RoundSummary
from icalib.metrics.significance import Interval
from icalib.reports.comparison import (
    CANDIDATES_ONLY,
    format_difference,
    format_share,
    format_value,
    giveaway,
)
from icalib.reports.paired_tests import SIGNIFICANT, MethodTest

DECIDED_BY = "MAP"
"""The metric by which methods are compared: of those with values of single pools, the least noisy."""
FEW_SELECTED = 0.1
"""A round that selects fewer pools than this fraction of the labelled ones hardly changes what is learnt."""
OFTEN_WRONG = 0.7
"""Below this fraction of right pseudo labels a student learns many errors."""
HARDLY_WRONG = 0.95
"""Above it, it doesn't matter that other pools would be labelled right as often."""
FEW_INTENTS = 0.1
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
        num_labelled: number of labelled pools; None where it isn't known.
        kept_start: whether every seed's training ended with its start.
    """

    label: str
    is_trained: bool
    ranks: bool
    num_seeds: int
    means: Mapping[str, float]
    ece: Interval | None = None
    rounds: tuple[RoundSummary, ...] = ()
    num_labelled: int | None = None
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


@final
@dataclass(frozen=True)
class Compared:
    """A paired test of two methods in `DECIDED_BY`: difference first − second, p by Holm."""

    difference: float
    p: float

    @property
    def is_better(self) -> bool:
        """Whether the first is better beyond chance."""
        return self.p < SIGNIFICANT and self.difference > 0

    @property
    def is_worse(self) -> bool:
        """Whether the first is worse beyond chance."""
        return self.p < SIGNIFICANT and self.difference < 0

    def __str__(self) -> str:
        return f"{DECIDED_BY} {format_difference(self.difference)}"


def verdict(methods: Sequence[MethodFacts], tests: Sequence[MethodTest], data: str) -> Verdict:
    """Return what the results of some methods on the same pools say.

    Args:
        methods: those of one table.
        tests: the paired tests of the table; empty where the methods can't be compared.
        data: the pool folder, for commands.
    """
    ranked = sorted(
        (one for one in methods if one.label != CANDIDATES_ONLY and DECIDED_BY in one.means),
        key=lambda one: -one.means[DECIDED_BY],
    )
    if not ranked:
        return Verdict(())
    best = ranked[0]
    if not best.ranks:
        nothing = f"No method ranks better than chance: the best, {best.label}, has {_level(best)}."
        return Verdict(
            (nothing, "Look at the pools first: `icalib prepare FILE --preview` shows how records are read.")
        )
    sentences = (
        _best(ranked, tests),
        _training(ranked, tests, data),
        _self_training(ranked, tests, data),
        _probabilities(best),
    )
    return Verdict(tuple(filter(None, sentences)), tuple(_warnings(methods)))


def compared(tests: Sequence[MethodTest], first: str, second: str) -> Compared | None:
    """Return the paired test of two methods, whichever of them the table names first; None if there is none."""
    for test in tests:
        if test.metric == DECIDED_BY and {test.first, test.second} == {first, second}:
            sign = 1 if test.first == first else -1
            return Compared(sign * test.difference, test.p_holm)
    return None


def _best(ranked: Sequence[MethodFacts], tests: Sequence[MethodTest]) -> str:
    best, others = ranked[0], ranked[1:]
    if not others:
        return f"{best.label} ranks better than chance: {_level(best)}."
    difference = best.means[DECIDED_BY] - others[0].means[DECIDED_BY]
    lead = (
        f"{best.label} ranks best: {_level(best)}, {DECIDED_BY} {format_difference(difference)} over {others[0].label}"
    )
    outcomes = {one.label: compared(tests, best.label, one.label) for one in others}
    beaten = [label for label, outcome in outcomes.items() if outcome is not None and outcome.is_better]
    alike = [label for label, outcome in outcomes.items() if outcome is not None and not outcome.is_better]
    if not beaten and not alike:
        return f"{lead}. It was not tested whether that is more than chance."
    if not alike:
        return f"{lead}. That is beyond chance{', as against all others' if len(beaten) > 1 else ''}."
    as_good = f"against {listed(alike)} it could be chance"
    return f"{lead}. " + (
        f"It is beyond chance against {listed(beaten)}; {as_good}." if beaten else _capital(as_good) + "."
    )


def _training(ranked: Sequence[MethodFacts], tests: Sequence[MethodTest], data: str) -> str:
    trained = next((one for one in ranked if one.is_trained), None)
    free = next((one for one in ranked if not one.is_trained), None)
    outcome = compared(tests, trained.label, free.label) if trained and free else None
    if trained is None or free is None or outcome is None:
        return ""
    if trained.kept_start:
        return (
            f"Training on labels changed nothing here: no epoch of {trained.label} was better on validation than its "
            f"start, so it ranks as before it saw labels ({outcome} against {free.label}, which needs none)."
        )
    if outcome.is_better:
        return (
            f"Training pays: {trained.label} is above {free.label}, the best method that needs no labels ({outcome})."
        )
    command = _command("icalib", "curve", trained.label, "--data", data)
    verb = "did harm" if outcome.is_worse else "doesn't pay"
    than = "is worse than" if outcome.is_worse else "isn't above"
    return (
        f"Training {verb} here: {trained.label} {than} {free.label}, which needs no labels"
        f"{'' if outcome.is_worse else ', beyond chance'} ({outcome}). {command} shows what labels are worth."
    )


def _self_training(ranked: Sequence[MethodFacts], tests: Sequence[MethodTest], data: str) -> str:
    students = [one for one in ranked if one.rounds and one.name in TEACHERS]
    if not students:
        return ""
    teachers = {one.label: one for one in ranked}
    student = next((one for one in students if TEACHERS[one.name] in teachers), students[0])
    teacher = teachers.get(TEACHERS[student.name])
    outcome = compared(tests, student.label, teacher.label) if teacher else None
    if teacher is None or outcome is None:
        command = _command("icalib", "compare", TEACHERS[student.name], student.label, "--data", data)
        return f"Whether self-training helped can't be said from {student.label} alone: {command} does."
    if outcome.is_better:
        return (
            f"Self-training helped: {student.label} is above {teacher.label}, which has no pseudo labels ({outcome})."
        )
    helped = "did harm" if outcome.is_worse else "has not helped beyond chance"
    why = likeliest_reason(student, data)
    which = f"{student.label} against {teacher.label}, without pseudo labels ({outcome})"
    return f"Self-training {helped} here: {which}. {why}"


def likeliest_reason(student: MethodFacts, data: str) -> str:
    """Return why self-training changed nothing for the better, most likely, with a command."""
    rounds = student.rounds
    is_precise = any(one.validation_pools_selected is not None for one in rounds)
    precise = "`--preset precise` takes thresholds that are precise on validation"
    tried = _command("icalib", "sweep", "icast_published", "--data", data, "--dry") + " shows what others select"
    surer = "more labels make the teacher surer, more validation pools the thresholds"
    cure = surer if is_precise else f"{precise}, {tried}"
    selected = sum(one.num_pools_selected for one in rounds) / len(rounds)
    if not selected:
        failed = (
            "threshold was precise enough on ten validation pools"
            if is_precise
            else "probability passed its thresholds"
        )
        return f"No {failed}, so nothing was selected: {cure}."
    if student.num_labelled is not None and selected < FEW_SELECTED * student.num_labelled:
        few = f"{selected:.3g} pools, beside {student.num_labelled} labelled ones too few to matter"
        return f"A round selected {few}: {cure}."
    right, base = pseudo_accuracy(rounds), base_accuracy(rounds)
    if right is not None and (right < OFTEN_WRONG or (base is not None and right <= base and right < HARDLY_WRONG)):
        remedy = (
            "the thresholds promise more, so validation has too few pools, or other ones" if is_precise else precise
        )
        return f"Only {format_share(right)} of the selected pools were labelled right: {remedy}."
    intents = intent_coverage(rounds)
    if intents is not None and intents < FEW_INTENTS:
        return (
            f"Intents were predicted in {format_share(intents)} of the pools only: "
            "`--set regime.rule.intents.choice=argmax` gives each utterance one."
        )
    enough = "Enough pools were selected" + (f", {format_share(right)} of them right" if right is not None else "")
    curve = _command("icalib", "curve", TEACHERS[student.name], "--data", data)
    return f"{enough}, so more labels may be worth little here: {curve} shows whether the label curve is flat."


def _probabilities(best: MethodFacts) -> str:
    ece = best.means.get("ECE")
    if ece is None or best.ece is None:
        return ""
    measured = f"ECE {format_value(ece)} (95 % interval {format_value(best.ece.low)}–{format_value(best.ece.high)})"
    better = _better_calibrator(best)
    after = "" if better is None else f"{format_value(best.means[post_hoc_tag('ECE', better)])} with"
    if best.ece.high <= USABLE_ECE:
        more = f"; {after} `--set calibration={better}`" if better is not None else ""
        return f"The probabilities of {best.label} can be used as they are: {measured}{more}."
    if better is not None:
        return (
            f"Calibrate the probabilities of {best.label} before you use them: {measured}, {after} {better}; "
            f"add `--set calibration={better}`."
        )
    return (
        f"Don't rely on the probabilities of {best.label}: {measured}, and no calibrator that was measured is clearly "
        "better. More validation pools may help."
    )


def _better_calibrator(best: MethodFacts) -> str | None:
    """The calibrator with the lowest NLL, if it improves NLL, and ECE beyond its interval."""
    assert best.ece is not None
    nll = best.means.get("NLL")
    found = {
        name: best.means[post_hoc_tag("NLL", name)]
        for name in POST_HOC
        if {post_hoc_tag("NLL", name), post_hoc_tag("ECE", name)} <= best.means.keys()
        and best.means[post_hoc_tag("ECE", name)] < best.ece.low
    }
    better = min(found, key=lambda name: found[name], default=None)
    return better if better is not None and nll is not None and found[better] < nll else None


def _warnings(methods: Sequence[MethodFacts]) -> list[str]:
    found: list[str] = []
    for one in methods:
        if one.rounds and not all(summary.num_pools_selected for summary in one.rounds):
            empty = sum(not summary.num_pools_selected for summary in one.rounds)
            found.append(f"{one.label}: {empty} of {len(one.rounds)} rounds selected no pool.")
        right, base = pseudo_accuracy(one.rounds), base_accuracy(one.rounds)
        if right is not None and base is not None and right < base:
            found.append(
                f"{one.label}: {format_share(right)} of the pools that got pseudo labels are right, fewer than if "
                f"every pool had been taken ({format_share(base)}). Its selection picks the wrong pools."
            )
    poor = [one.label for one in methods if not one.ranks and one.name != CANDIDATES_ONLY]  # which should be at chance
    if poor:
        found.append(
            f"No better than chance: {listed(poor)}. Calibration says nothing there, since always answering with the "
            "fraction of right candidates is calibrated, too; such values are never bold."
        )
    if any(one.ranks for one in methods if one.name == CANDIDATES_ONLY):
        warning = giveaway({one.label: one.means.get("R@1") for one in methods})
        found += [warning] if warning else []
    if len(methods) > 1 and all(one.num_seeds == 1 for one in methods):
        found.append("One seed each: another may change the order, `--seeds 3` shows how much.")
    return found


def pseudo_accuracy(rounds: Sequence[RoundSummary]) -> float | None:
    """Return the fraction of right ones among the selected pools of all rounds; None where it isn't known."""
    return _weighted([(one.pool_accuracy, one.num_pools_selected) for one in rounds])


def base_accuracy(rounds: Sequence[RoundSummary]) -> float | None:
    """Return the fraction right if every pool were taken, in the rounds that selected any; None if unknown."""
    return _weighted([(one.base_accuracy, one.num_pools_selected) for one in rounds])


def intent_coverage(rounds: Sequence[RoundSummary]) -> float | None:
    """Return the fraction of scored pools with any predicted intent; None for methods without intents."""
    known = [one for one in rounds if one.num_pools_with_intents is not None]
    scored = sum(one.num_pools_scored for one in known)
    return sum(one.num_pools_with_intents or 0 for one in known) / scored if scored else None


def _weighted(values: Sequence[tuple[float | None, int]]) -> float | None:
    known = [(value, weight) for value, weight in values if value is not None and weight]
    return sum(value * weight for value, weight in known) / sum(weight for _, weight in known) if known else None


def _level(one: MethodFacts) -> str:
    recall = one.means.get("R@1")
    alone = f"{DECIDED_BY} {format_value(one.means[DECIDED_BY])}"
    return alone if recall is None else f"{alone}, R@1 {format_value(recall)}"


def listed(labels: Sequence[str]) -> str:
    """Return labels as an English list."""
    return labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} and {labels[-1]}"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _command(*words: str) -> str:
    return f"`{shlex.join(words)}`"
