"""The run folder: the record of one run (one method, data set and seed), of which every report is a view.

runs/<experiment>/<method>-<data>-<labelled>-s<seed>/
    config.yaml        resolved settings; `icalib run config.yaml` runs it again
    provenance.json    versions, digests, command
    stages.json        what was computed, what was reused, seconds; written during the run
    training.parquet   TRAINING_SCHEMA: learning curves of every stage
    rounds/<r>/        pseudo_labels.parquet (PSEUDO_LABEL_SCHEMA), summary.json (RoundSummary)
    generated/         a generator's texts for the labelled pools, for people to look at
    parts.json         of each member: weights w_k and offset b of its parts, R@1 and NLL of each alone and of the sum
    intents.json       how well the intent part predicts intents on validation: F1 of all, of each, frequencies
    chosen.json        round and epoch whose model is the result; epoch 0 is the start of its training
    predictions/       <split>.parquet (PREDICTION_SCHEMA), <split>_intents.parquet (INTENT_SCHEMA)
    metrics.parquet    METRIC_SCHEMA
    fitted.json        what was fitted on validation: gain rule, calibration map, decision threshold
    checkpoints/final/ the model: parts.json, and a folder for each part that predicts (safetensors, config,
                       tokenizer); if there are several, each in its member-<n>/
    members.json       whose predictions are averaged: checkpoints (relative) and estimators
    shift/<data>/      what `icalib evaluate` found on other pools: predictions, metrics, result.json (written last)
    tb/, report.html   views
    files.json         size and digest of all files but views, events and shift/, by which damage is noticed
    result.json        written last; a folder without it is unfinished

`run_tables.py` has the schemas.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from icalib.core.component import validated_file
from icalib.core.contents import Contents, contents_of, damages, read_record
from icalib.core.errors import DamagedFileError, RunFolderError, SettingError
from icalib.core.files import FileObject, json_bytes, read_json, read_json_list, reading, write_json
from icalib.core.parquet import read_parquet, write_parquet
from icalib.core.run_tables import INTENT_SCHEMA, METRIC_SCHEMA, PREDICTION_SCHEMA, TRAINING_SCHEMA, RoundSummary
from icalib.core.storage import location, pull
from icalib.core.yaml_text import read_mapping, write_mapping

RUN_VERSION = 5

_FILES = "files.json"
_NOT_CHECKED = ("tb", "report.html", "events.jsonl", "shift", _FILES)
_RERUN = (
    "Run its `icalib run` command again: it writes what is damaged again. To use the folder unchecked, e.g. after you "
    f"changed that file on purpose, remove {_FILES}."
)


def refuse_links(folder: Path, names: Iterable[str]) -> None:
    """Refuse links where icalib would write into a folder, which may be somebody else's: they lead elsewhere."""
    for path in (folder / name for name in names):
        found = [path, *(path.rglob("*") if path.is_dir() and not path.is_symlink() else ())]
        for link in (one for one in found if one.is_symlink()):
            raise RunFolderError(f"{link} is a link, by which icalib would write outside of {folder}. Remove it.")


def read_config(path: Path) -> dict[str, Any]:
    """Return the settings in a run's config.yaml, not yet validated, or raise a RunFolderError."""
    try:
        return FileObject.of(path, read_mapping(path).items())
    except ValueError as error:
        cure = "Correct it, or run `icalib run` with --fresh to recompute it."
        raise RunFolderError(f"{path} can't be read: {error}. {cure}") from error


def run_command(config: Path, runs: Path) -> str:
    """What runs a config.yaml again; in the same folder of runs it finds the stages that are cached there."""
    return shlex.join(["icalib", "run", location(config), "--runs", location(runs)])


class RunFolder:
    """Paths and tables of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.name = self.path.name
        self.checkpoint_path = self.path / "checkpoints" / "final"
        self.fitted_path = self.path / "fitted.json"

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """Open a finished run, and check its files; from an object store its models are not downloaded.

        A RunFolderError says that it isn't a finished run of this version, a DamagedFileError that a file has changed.
        """
        run = cls(path)
        pull(run.path, leave_out="checkpoints")
        if not (run.path / "config.yaml").is_file():
            found = (
                "has no config.yaml" if run.path.is_dir() else "is a file" if run.path.is_file() else "doesn't exist"
            )
            raise RunFolderError(
                f"{location(run.path)} is not a run folder: it {found}. Name a folder that `icalib run` wrote, "
                "runs/EXPERIMENT/METHOD-DATA-LABELLED-sSEED."
            )
        run.check_version()
        refuse_links(run.path, _NOT_CHECKED)
        if not run.is_finished:
            raise RunFolderError(
                f"{location(run.path)} is not finished. Run the same `icalib run` command again to resume it."
            )
        run.check(checkpoints=False)
        if "test" not in run.result:
            trial = run.path.resolve()
            command = run_command(trial / "config.yaml", [*trial.parents][:4][-1])
            raise RunFolderError(
                f"{path} is a trial of a sweep: it has no test metrics and no model. "
                f"`{command}` makes a complete run of it and reuses the cached stages."
            )
        return run

    def check_version(self) -> None:
        """Refuse a folder of another version."""
        version = self.config.get("version")
        if version != RUN_VERSION:
            raise RunFolderError(
                f"{self.path} has run-folder version {version}, this icalib reads version {RUN_VERSION}. "
                "Use the icalib that wrote it (provenance.json names the version), or use --fresh to recompute it."
            )

    def check(self, *, checkpoints: bool) -> None:
        """Raise a DamagedFileError if a file of a finished run, or if asked for its models, isn't as it was written."""
        for damage in self.damages(checkpoints=checkpoints):
            raise damage

    def damages(self, *, checkpoints: bool) -> Iterator[DamagedFileError]:
        """Yield an error for each file of a finished run that is missing or has changed."""
        path = self.path / _FILES
        if not path.is_file():
            return
        try:
            with reading(path):
                files: Contents = read_record(path)["files"]
                yield from damages(self.path, files, cure=_RERUN, leave_out=() if checkpoints else ("checkpoints",))
        except DamagedFileError as error:
            yield DamagedFileError(error.path, error.found, _RERUN)

    @property
    def is_finished(self) -> bool:
        """Whether result.json, which is written last, exists."""
        return (self.path / "result.json").is_file()

    @property
    def config(self) -> dict[str, Any]:
        """The resolved settings."""
        return read_config(self.path / "config.yaml")

    @property
    def result(self) -> dict[str, Any]:
        """The object that `--json` prints, or a DamagedFileError; `run` is where the folder is now, if it was moved."""
        path = self.path / "result.json"
        with reading(path):
            found = read_json(path)
            for metric, value in found.get("test", {}).items():
                found["test"][metric] = None if value is None else float(value)
            if "run" in found:
                found["run"] = location(self.path.absolute())
            return found

    @property
    def data_digest(self) -> str:
        """Digest of the pools that it was trained on."""
        path = self.path / "provenance.json"
        with reading(path):
            return str(read_json(path)["data_digest"])

    @property
    def from_outside(self) -> dict[str, str]:
        """The components from outside that it was computed with, with the digests of their files."""
        path = self.path / "provenance.json"
        with reading(path):
            return dict(read_json(path)["from_outside"])

    def check_trained_on(self, data: Path, digest: str) -> None:
        """Refuse a pool folder, by its digest, with other pools than the run was trained on."""
        if self.data_digest != digest:
            raise SettingError(
                f"{data} has other pools than {self.path} was trained on: it was prepared again since. "
                "Name a run of the pools as they are now."
            )

    @property
    def context_turns(self) -> int:
        """Maximum number of utterances in the contexts of the run's pools."""
        path = self.path / "provenance.json"
        with reading(path):
            return int(read_json(path)["context_turns"])

    @property
    def stages(self) -> list[dict[str, Any]]:
        """The stages so far, in order: name, digest, reused, seconds, path."""
        with reading(self.path / "stages.json"):
            found = self._list("stages.json")
            for stage in found:
                stage["seconds"] = float(stage["seconds"])
            return found

    @property
    def members(self) -> list[tuple[Path, dict[str, Any]]]:
        """Checkpoint and estimator of each member whose predictions are averaged; none for untrained methods."""
        with reading(self.path / "members.json"):
            members = self._list("members.json")
            return [(self.path / member["checkpoint"], member["estimator"]) for member in members]

    @property
    def round_folders(self) -> list[Path]:
        """The folders rounds/<r>, in order."""
        found = (folder for folder in (self.path / "rounds").glob("*") if folder.name.isdecimal())  # no copies: 1 (2)
        return sorted(found, key=lambda folder: int(folder.name))

    def round_summaries(self) -> list[RoundSummary]:
        """Return the summary of each finished round."""
        paths = [folder / "summary.json" for folder in self.round_folders]
        return [validated_file(path, RoundSummary, read_json(path)) for path in paths]

    def predictions_path(self, split: str) -> Path:
        """Return the file with the predictions of a split."""
        return self.path / "predictions" / f"{split}.parquet"

    def predictions(self, split: str) -> pa.Table:
        """Return PREDICTION_SCHEMA of validation or test, or raise a SettingError for another split."""
        if split not in ("validation", "test"):
            raise SettingError(f"a run has no predictions for {split!r}. Choose validation or test.")
        return read_parquet(self.predictions_path(split), schema=PREDICTION_SCHEMA)

    def has_predictions(self, split: str) -> bool:
        """Return whether the split was predicted; the trials of a sweep leave out test."""
        return self.predictions_path(split).is_file()

    def predicted_intents(self, split: str) -> pa.Table | None:
        """Return INTENT_SCHEMA of a split; None for methods without intents."""
        path = self.path / "predictions" / f"{split}_intents.parquet"
        return read_parquet(path, schema=INTENT_SCHEMA) if path.is_file() else None

    def training(self) -> pa.Table:
        """Return TRAINING_SCHEMA; without rows for untrained methods."""
        path = self.path / "training.parquet"
        return read_parquet(path, schema=TRAINING_SCHEMA) if path.is_file() else TRAINING_SCHEMA.empty_table()

    @property
    def parts(self) -> list[dict[str, Any]]:
        """The fitted sum of each member, as parts.json has it; none for untrained methods."""
        return self._list("parts.json")

    def _list(self, name: str) -> list[dict[str, Any]]:
        path = self.path / name
        return read_json_list(path) if path.is_file() else []

    def metrics(self) -> pa.Table:
        """Return METRIC_SCHEMA."""
        return read_parquet(self.path / "metrics.parquet", schema=METRIC_SCHEMA)

    def shift_path(self, data: str) -> Path:
        """Return the folder of the evaluation on another pool set."""
        return self.path / "shift" / data

    def has_shift(self, data: str) -> bool:
        """Return whether the run was evaluated on another pool set."""
        return (self.shift_path(data) / "result.json").is_file()

    def shift_predictions(self, data: str) -> pa.Table:
        """Return PREDICTION_SCHEMA of another pool set's test split."""
        return read_parquet(self.shift_path(data) / "predictions.parquet", schema=PREDICTION_SCHEMA)

    def shift_result(self, data: str) -> dict[str, Any]:
        """Return the evaluation on another pool set, as `icalib evaluate --json` prints it."""
        found = RunFolder(self.shift_path(data)).result
        found["run"] = location(self.path.absolute())
        return found

    def shifts(self) -> list[dict[str, Any]]:
        """Return the evaluations on other pool sets, sorted by name, as `icalib evaluate --json` prints them."""
        found = [RunFolder(path.parent) for path in sorted((self.path / "shift").glob("*/result.json"))]
        for shift in found:
            shift.check(checkpoints=False)
        return [self.shift_result(shift.name) for shift in found]

    def write_config(self, config: dict[str, Any]) -> None:
        """Write config.yaml with the folder's version."""
        write_mapping(self.path / "config.yaml", {"version": RUN_VERSION, **config})

    def write_table(self, name: str, table: pa.Table) -> None:
        """Write a Parquet table, atomically."""
        write_parquet(self.path / name, table)

    def finish(self, result: dict[str, Any]) -> None:
        """Record what the folder holds in files.json, then write result.json."""
        text = json_bytes(result)
        files = contents_of(self.path, leave_out=_NOT_CHECKED)
        files["result.json"] = {"size": len(text), "sha256": hashlib.sha256(text).hexdigest()}
        self.write_json(_FILES, {"files": files})
        self.write_json("result.json", result)

    def write_json(self, name: str, value: Any) -> None:
        """Write a JSON file, atomically."""
        write_json(self.path / name, value)
