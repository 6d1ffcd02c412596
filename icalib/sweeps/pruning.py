"""Pruning: a trial reports its metric step by step, and is stopped when the others are better."""

from __future__ import annotations

import math
import warnings

import optuna
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import RandomSampler

from icalib.core.errors import Abandoned
from icalib.sweeps.folder import SweepFolder
from icalib.sweeps.journal import live_trial, open_journal
from icalib.sweeps.space import Pruner

_STOPPED = "stopped"


class TrialStopped(Abandoned):
    """The pruner stopped a trial."""


class Rungs:
    """Reports from a trial's process to the pruner, which may stop the trial.

    Optuna's pruners decide: halving after steps 1, 3, 9 …, the median after any, once five trials are complete (it
    compares a trial's best step so far, so that it rarely stops one after its first seed). A step is an epoch, or the
    mean over the seeds so far. With several metrics nothing is reported, since pruners look at one.
    """

    def __init__(self, folder: SweepFolder, number: int) -> None:
        settings = folder.settings
        self._trial: optuna.Trial | None = None
        if len(settings.metrics) == 1:
            study = optuna.load_study(
                study_name=folder.path.name,
                storage=open_journal(folder.journal_path),
                sampler=RandomSampler(),
                pruner=_pruner(settings.pruner),
            )
            self._trial = live_trial(study, number)

    def report(self, step: int, value: float) -> None:
        """Report the metric at a step; a step that was reported before an interruption keeps its value.

        Raises:
            TrialStopped: the other trials are better at this step.
        """
        if self._trial is None or math.isnan(value):
            return
        if _STOPPED in self._trial.user_attrs:
            raise TrialStopped(self._trial.user_attrs[_STOPPED])
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"The reported value is ignored", UserWarning)
            self._trial.report(value, step)
        if self._trial.should_prune():
            # Stored: asked again after a kill, halving would let the trial continue to its next rung.
            self._trial.set_user_attr(_STOPPED, f"the pruner stopped trial {self._trial.number} after step {step}")
            raise TrialStopped(self._trial.user_attrs[_STOPPED])


def _pruner(name: Pruner) -> BasePruner:
    if name == "median":
        return MedianPruner()
    if name == "asha":
        return SuccessiveHalvingPruner(min_resource=1, reduction_factor=3)
    return HyperbandPruner(min_resource=1) if name == "hyperband" else NopPruner()
