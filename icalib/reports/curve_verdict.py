"""What a label curve says, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from icalib.reports.comparison import format_difference, format_p
from icalib.reports.paired_tests import SIGNIFICANT


@final
@dataclass(frozen=True)
class CurveStep:
    """How much the largest number of labels improves on the smallest, by a paired test over the same pools."""

    few: int
    many: int
    difference: float
    p_value: float


@final
@dataclass(frozen=True)
class FreeBaseline:
    """How much the largest number of labels improves on the best untrained method, by a paired test."""

    label: str
    num_labels: int
    difference: float
    p_value: float


@final
@dataclass(frozen=True)
class CurveFacts:
    """One method's label curve.

    Attributes:
        label: the method's name.
        metric: the metric of all differences, of which more is better.
        rise: between the ends of the curve; None with one number of labels.
        worth_of_next: a number of further labels, and what they are expected to add.
        against_free: None without an untrained method.
    """

    label: str
    metric: str
    rise: CurveStep | None
    worth_of_next: tuple[int, float] | None
    against_free: FreeBaseline | None


def curve_verdict(facts: CurveFacts) -> str:
    """Return what a label curve says about labels, training and self-training."""
    rise = facts.rise
    if rise is None:
        text = f"{facts.label}: one number of labels, so nothing can be said about more."
    else:
        change = (
            f"{facts.metric} {rise.difference:+.3f} from {rise.few} to {rise.many} labels (p {_p_text(rise.p_value)})"
        )
        if rise.difference > 0 and rise.p_value < SIGNIFICANT:
            number, worth = facts.worth_of_next or (0, 0.0)
            text = (
                f"{facts.label} rises: {change}. The next {number} labels are worth about {worth:+.3f} {facts.metric}; "
                "self-training may be worth trying."
            )
        else:
            text = (
                f"{facts.label} does not rise: {change}. More labels of this kind, and pseudo labels even less, are "
                "not worth their cost; improve the start or the training first."
            )
    return f"{text} {_against(facts.against_free, facts.metric)}".rstrip()


def _against(free: FreeBaseline | None, metric: str) -> str:
    if free is None:
        return ""
    measured = f"{metric} {format_difference(free.difference)}, p {_p_text(free.p_value)}"
    if free.p_value >= SIGNIFICANT:
        return (
            f"With {free.num_labels} labels it isn't above {free.label}, which needs none, beyond chance ({measured})."
        )
    place = "above" if free.difference > 0 else "below"
    return f"With {free.num_labels} labels it is {place} {free.label}, which needs none ({measured})."


def _p_text(value: float) -> str:
    return format_p(value) if value < 0.001 else f"= {format_p(value)}"
