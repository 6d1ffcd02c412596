"""The study's journal, guarded by a lock that ends with its holder, and what trials report to the pruner in it."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import RandomSampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from icalib.core.errors import Abandoned
from icalib.core.files import reading
from icalib.core.locks import FileLock
from icalib.sweeps.folder import SweepFolder
from icalib.sweeps.space import Pruner

optuna.logging.set_verbosity(optuna.logging.WARNING)


def open_journal(journal: Path) -> JournalStorage:
    """Open the journal, which is made if it does not exist; a DamagedFileError if it can't be read."""
    journal.parent.mkdir(parents=True, exist_ok=True)
    lock: Any = _JournalLock(journal)
    with reading(journal):
        return JournalStorage(JournalFileBackend(str(journal), lock_obj=lock))


class _JournalLock:
    """The lock of a process that appends to the journal; acquiring it removes an incomplete last line.

    Unlike Optuna's own locks it ends with its holder: a killed process blocks no other. Half a line, which a full disk
    or a kill can leave, is cut off: Optuna would refuse the whole journal as soon as a line followed it.
    """

    def __init__(self, journal: Path) -> None:
        self._journal, self._lock = journal, FileLock(journal.with_name(f"{journal.name}.lock"))

    def acquire(self) -> bool:
        """Wait for the lock, then repair the journal."""
        self._lock.acquire()
        with self._journal.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            if file.read() not in (b"", b"\n"):
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
        return True

    def release(self) -> None:
        """Let the next process in."""
        self._lock.release()


def live_trial(study: optuna.Study, number: int) -> optuna.Trial:
    """Return a trial that another process asked for, to be changed."""
    frozen = study.get_trials(deepcopy=False)[number]
    return optuna.Trial(study, frozen._trial_id)  # pyright: ignore[reportPrivateUsage]  # no public way by number


_STOPPED = "stopped"


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
                pruner=_PRUNERS[settings.pruner](),
            )
            self._trial = live_trial(study, number)

    def report(self, step: int, value: float) -> None:
        """Report the metric at a step; Abandoned if the other trials are better at it.

        A step that was reported before an interruption keeps its value.
        """
        if self._trial is None or math.isnan(value):
            return
        if _STOPPED in self._trial.user_attrs:
            raise Abandoned(self._trial.user_attrs[_STOPPED])
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"The reported value is ignored", UserWarning)
            self._trial.report(value, step)
        if self._trial.should_prune():
            # Stored: asked again after a kill, halving would let the trial continue to its next rung.
            self._trial.set_user_attr(_STOPPED, f"the pruner stopped trial {self._trial.number} after step {step}")
            raise Abandoned(self._trial.user_attrs[_STOPPED])


_PRUNERS: dict[Pruner, Callable[[], BasePruner]] = {
    "none": NopPruner,
    "median": MedianPruner,
    "asha": lambda: SuccessiveHalvingPruner(min_resource=1, reduction_factor=3),
    "hyperband": lambda: HyperbandPruner(min_resource=1),
}
