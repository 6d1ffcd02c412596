"""A copy of a study for optuna-dashboard, in which failed trials are failed.

In the study itself they keep running, since the next call runs them again, and Optuna can't restart a failed trial.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import optuna
from optuna.trial import TrialState

from icalib.core.files import whole_file
from icalib.sweeps.journal import open_journal
from icalib.sweeps.study import error_of

DASHBOARD = "dashboard.journal"


def write_dashboard_journal(journal: Path, out: Path) -> Path:
    """Copy a journal to `out`, with the trials that failed told as failed; returns `out`.

    Raises:
        DamagedFileError: the journal can't be read.
        StorageError: the disk is full or can't be written.
    """
    with whole_file(out) as temporary:
        shutil.copyfile(journal, temporary)
        storage = open_journal(temporary)
        for summary in optuna.get_all_study_summaries(storage):
            study = optuna.load_study(study_name=summary.study_name, storage=storage)
            for trial in study.get_trials(deepcopy=False):
                if trial.state == TrialState.RUNNING and error_of(trial) is not None:
                    study.tell(trial.number, state=TrialState.FAIL)
    temporary.with_name(f"{temporary.name}.lock").unlink(missing_ok=True)
    return out
