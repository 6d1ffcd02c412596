"""trials.parquet: what the study and the run folders have on each trial."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from icalib.core.files import read_json
from icalib.core.run_folder import RunFolder
from icalib.sweeps.folder import State, SweepFolder, encoded_params
from icalib.sweeps.study import SweepStudy, error_of, failed_at, settings_of

_STAGE = ("name", "digest", "reused", "seconds")
_STATES: dict[TrialState, State] = {
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
    TrialState.RUNNING: "running",
}


class TrialTable:
    """The writer of trials.parquet; it reads a finished run once."""

    def __init__(self, folder: SweepFolder, study: SweepStudy) -> None:
        self._folder, self._study = folder, study
        self._finished: dict[tuple[int, int], dict[str, Any]] = {}

    def write(self) -> None:
        """Write the table in its present state."""
        self._folder.write_trials([row for trial in self._study.trials() for row in self._rows(trial)])

    def _rows(self, trial: FrozenTrial) -> Iterator[dict[str, Any]]:
        """Yield a row for each seed whose run is finished, and one for the seed that is running or ended early."""
        best = self._folder.best()
        for seed in range(1, self._folder.settings.seeds + 1):
            run = self._folder.run_folder(trial.number, seed)
            if not run.is_finished:
                row = self._row(trial, seed, run)
                yield {**row, **_end(trial, row.get("started"))}
                return
            row = self._finished_row(trial, seed, run)
            if best is not None and best.trial == trial.number:
                tested = _metrics(self._folder.best_run(seed))
                row = {**row, "metrics": row["metrics"] + [metric for metric in tested if metric["split"] == "test"]}
            yield row

    def _finished_row(self, trial: FrozenTrial, seed: int, run: RunFolder) -> dict[str, Any]:
        key = trial.number, seed
        if key not in self._finished:
            self._finished[key] = {**self._row(trial, seed, run), "state": "complete", "metrics": _metrics(run)}
        return self._finished[key]

    def _row(self, trial: FrozenTrial, seed: int, run: RunFolder) -> dict[str, Any]:
        row: dict[str, Any] = {
            "trial": trial.number,
            "seed": seed,
            "params": encoded_params(settings_of(trial)),
            "run": run.path.relative_to(self._folder.path).as_posix(),
        }
        return row | _facts(run)


def _end(trial: FrozenTrial, started: str | None) -> dict[str, Any]:
    error, finished = error_of(trial), failed_at(trial)
    facts: dict[str, Any] = {"state": _STATES[trial.state] if error is None else "failed", "error": error}
    if trial.datetime_complete is not None:
        finished = trial.datetime_complete.astimezone(UTC).isoformat(timespec="milliseconds")
    if finished is not None:
        facts["finished"] = finished
        facts["seconds"] = _seconds(started or facts["finished"], facts["finished"])
    return facts


def _facts(run: RunFolder) -> dict[str, Any]:
    facts: dict[str, Any] = {"stages": [{key: stage[key] for key in _STAGE} for stage in run.stages]}
    provenance_path = run.path / "provenance.json"
    if provenance_path.is_file():
        provenance = read_json(provenance_path)
        facts |= {"started": provenance["started"], "finished": provenance["finished"]}
        facts["seconds"] = _seconds(provenance["started"], provenance["finished"])
    summaries = run.round_summaries()
    if summaries:
        last = summaries[-1]
        facts |= {
            "num_pseudo_pools": last.num_pools_selected,
            "num_pseudo_pairs": last.num_pairs_selected,
            "pseudo_accuracy": last.pool_accuracy,
            "num_selected_intents": last.num_pairs_with_intents,
        }
    return facts


def _seconds(started: str, finished: str | None) -> float | None:
    if finished is None:
        return None
    return (datetime.fromisoformat(finished) - datetime.fromisoformat(started)).total_seconds()


def _metrics(run: RunFolder) -> list[dict[str, Any]]:
    return [{"split": row["split"], "name": row["metric"], "value": row["value"]} for row in run.metrics().to_pylist()]
