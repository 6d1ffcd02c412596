"""How far the best trial of a sweep leads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from icalib.metrics.catalogue import find_metric
from icalib.metrics.metric import Direction
from icalib.metrics.pairs import FloatArray, PoolScores
from icalib.metrics.significance import paired_permutation_test
from icalib.reports.comparison import format_difference, format_p
from icalib.reports.paired_tests import SIGNIFICANT
from icalib.sweeps.trials import Trial


def lead_text(order: Sequence[Trial], metrics: Mapping[str, Direction]) -> str | None:
    """Say how far the best trial leads the next in the first metric; None below two complete trials.

    Where the metric has values of single pools and the runs' predictions are there, the two are tested over the
    validation pools.

    Args:
        order: complete trials, the best first.
        metrics: what was tuned.
    """
    if len(order) < 2:
        return None
    best, second, *_ = order
    metric = next(iter(metrics))
    difference = (best.mean(metric) or 0.0) - (second.mean(metric) or 0.0)
    lead = (
        f"Trial {best.number} leads trial {second.number}, the next of {len(order)}, by "
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
