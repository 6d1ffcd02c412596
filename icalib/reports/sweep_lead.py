"""How far the best trial of a sweep leads, and whether that could be chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from icalib.core.run_folder import RunFolder
from icalib.metrics.catalogue import find_metric
from icalib.metrics.metric import Direction
from icalib.metrics.pairs import FloatArray, PoolScores
from icalib.metrics.significance import paired_permutation_test
from icalib.reports.comparison import format_difference, format_p
from icalib.reports.paired_tests import SIGNIFICANT
from icalib.reports.sweep_trials import Trial, ranked
from icalib.sweeps.folder import SweepFolder


@final
@dataclass(frozen=True)
class Lead:
    """A sentence about the best trial and the next, and whether their difference is beyond chance."""

    text: str
    is_significant: bool


def lead_of(folder: SweepFolder, trials: Sequence[Trial], metrics: Mapping[str, Direction]) -> Lead | None:
    """Compare the best trial with the next in the first metric; None below two complete trials.

    Where the metric has values of single pools and the runs' predictions are there, the two are tested over the
    validation pools.
    """
    order = ranked(trials, metrics)
    if len(order) < 2:
        return None
    best, second = order[:2]
    metric = next(iter(metrics))
    difference = (best.mean(metric) or 0.0) - (second.mean(metric) or 0.0)
    text = (
        f"Trial {best.number} leads trial {second.number}, the next of {len(order)}, by "
        f"{find_metric(metric).title} {_fine(difference)} on validation"
    )
    values = [_per_pool(folder, trial, metric) for trial in (best, second)]
    first, other = values
    if first is None or other is None or first.shape != other.shape or len(first) < 2:
        return Lead(f"{text}. Whether that is more than chance was not tested; `--seeds 3` shows the noise.", False)
    p = paired_permutation_test(first, other, seed=0).p_value
    if p < SIGNIFICANT:
        return Lead(f"{text}, more than chance between the two (p {format_p(p)}).", True)
    return Lead(
        f"{text}. That could be chance (p {format_p(p)}, paired over the validation pools): the settings of both "
        "are as good a choice.",
        False,
    )


def _per_pool(folder: SweepFolder, trial: Trial, metric: str) -> FloatArray | None:
    """Values of the validation pools, mean over the seeds; None where they are not known."""
    per_pool = find_metric(metric).per_pool
    runs = [RunFolder(folder.path / row["run"]) for row in trial.rows if row["run"]]
    if per_pool is None or not runs or not all(run.has_predictions("validation") for run in runs):
        return None
    return np.mean([per_pool(PoolScores.from_predictions(run.predictions("validation"))) for run in runs], axis=0)


def _fine(value: float) -> str:
    """A difference with enough decimals to be seen: three, four below 0.001."""
    return format_difference(value) if abs(value) >= 0.001 else f"{value:+.4f}".replace("-", "−")
