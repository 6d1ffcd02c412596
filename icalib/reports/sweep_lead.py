"""What a sweep's trials say beyond their metrics: which settings changed nothing, and how far the best trial leads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from icalib.metrics.catalogue import find_metric
from icalib.metrics.metric import Direction
from icalib.metrics.pairs import FloatArray, PoolScores
from icalib.metrics.significance import paired_permutation_test
from icalib.reports.comparison import format_difference, format_p
from icalib.reports.paired_tests import SIGNIFICANT
from icalib.sweeps.ties import Tie
from icalib.sweeps.trials import Trial

_MOST_TIES = 3
_MOST_LISTED = 6


def ties_text(ties: Sequence[Tie], num_complete: int) -> str | None:
    """Name the settings that changed nothing, in one line; None where trials with other settings predict otherwise.

    Args:
        ties: trials that predict the same, the largest group first.
        num_complete: number of complete trials.
    """
    varied: dict[frozenset[str], list[Tie]] = {}
    for tie in ties:
        if tie.varied:
            varied.setdefault(frozenset(tie.varied), []).append(tie)
    if not varied:
        return None
    groups = [_group_text(alike[0], len(alike) - 1) for alike in varied.values()]
    if len(groups) > _MOST_TIES:
        groups[_MOST_TIES:] = [f"and {len(groups) - _MOST_TIES} more such changes"]
    tied = [tie for alike in varied.values() for tie in alike]
    text = (
        f"{sum(len(tie.trials) for tie in tied)} of {num_complete} trials have the same predictions as another trial "
        f"with other settings: {'; '.join(groups)}."
    )
    if all(tie.kept_initial_weights for tie in tied):
        text += (
            " In all of them the last training kept its initial weights (epoch 0): what changes that training alone "
            "can't change predictions."
        )
    return text


def _group_text(tie: Tie, num_others: int) -> str:
    """Say what changed nothing in a group, and in how many other groups it was the same."""
    settings = " and ".join(f"{name} ({_listed(map(json.dumps, values))})" for name, values in tie.varied.items())
    others = f"; the same in {num_others} other {'group' if num_others == 1 else 'groups'}" if num_others else ""
    return f"changing {settings} changed nothing (trials {_listed(tie.trials)}{others})"


def _listed(items: Iterable[object]) -> str:
    texts = list(map(str, items))
    return ", ".join(texts[:_MOST_LISTED]) + (f" and {len(texts) - _MOST_LISTED} more" * (len(texts) > _MOST_LISTED))


def lead_text(order: Sequence[Trial], metrics: Mapping[str, Direction], ties: Sequence[Tie]) -> str | None:
    """Say how far the best trial leads the next in the first metric; None below two complete trials.

    Where the metric has values of single pools and the runs' predictions are there, the two are tested over the
    validation pools. Trials that predict the same as the best are named, and the next is the first that doesn't.

    Args:
        order: complete trials, the best first.
        metrics: what was tuned.
        ties: trials that predict the same.
    """
    if len(order) < 2:
        return None
    best, metric = order[0], next(iter(metrics))
    alike = next((tie.trials for tie in ties if best.number in tie.trials), (best.number,))
    shared = (
        f"Trials {_listed(alike)} are the best, with the same predictions; trial {best.number} was chosen "
        "because it came first. "
        if len(alike) > 1
        else ""
    )
    second = next((trial for trial in order if trial.number not in alike), None)
    if second is None:
        return shared.rstrip()
    difference = (best.mean(metric) or 0.0) - (second.mean(metric) or 0.0)
    lead = (
        f"{shared}Trial {best.number} leads trial {second.number}, the next of {len(order)}, by "
        f"{find_metric(metric).title} {_fine(difference)} on validation"
    )
    first, other = _per_pool(best, metric), _per_pool(second, metric)
    if first is None or other is None or first.shape != other.shape or len(first) < 2:
        return f"{lead}. Whether that is more than chance was not tested; `--seeds 3` shows the noise."
    p = paired_permutation_test(first, other, seed=0).p_value
    tested = f"(p {format_p(p)}, paired over the validation pools)"
    if p < SIGNIFICANT:
        return f"{lead}, more than chance between the two {tested}."
    return f"{lead}. That could be chance {tested}: the settings of both are as good a choice."


def _per_pool(trial: Trial, metric: str) -> FloatArray | None:
    """Values of the validation pools, mean over the seeds; None where they are not known."""
    per_pool = find_metric(metric).per_pool
    if per_pool is None or not trial.runs or not all(run.has_predictions("validation") for run in trial.runs):
        return None
    return np.mean([per_pool(PoolScores.from_predictions(run.predictions("validation"))) for run in trial.runs], axis=0)


def _fine(value: float) -> str:
    """A difference with enough decimals to be seen: three, four below 0.001."""
    return format_difference(value) if abs(value) >= 0.001 else f"{value:+.4f}".replace("-", "−")
