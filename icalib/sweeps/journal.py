"""The study's journal: Optuna's file, guarded by a lock that ends with the process that holds it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from icalib.core.files import reading
from icalib.core.locks import FileLock

optuna.logging.set_verbosity(optuna.logging.WARNING)


def open_journal(journal: Path) -> JournalStorage:
    """Open the journal, which is made if it does not exist.

    Raises:
        DamagedFileError: the journal can't be read.
    """
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
