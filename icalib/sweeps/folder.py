"""The sweep folder: the record of many runs of one method with different settings, of which reports are views.

runs/<experiment>/sweep-<space>-<data>-<labelled>/
    sweep.yaml         SweepSettings; the same command again resumes the sweep
    study.journal      Optuna's journal (optuna-dashboard reads it); the study has the folder's name
    trials/            <trial>-s<seed>/: run folders as `icalib run` writes them, but without test predictions
    dry.parquet        DRY_SCHEMA: the result of `--dry`
    best.json          Best: the winner with its validation and test metrics, computed once at the end
    best/config.yaml   the winner's settings, which `icalib run` accepts as they are
    best/s<seed>/      the winner's run folders with test metrics and models
    trials.csv, report.html    views
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import Field

from icalib.core.component import Settings, Stored, validated_file
from icalib.core.errors import RunFolderError
from icalib.core.files import read_json, reading, write_json
from icalib.core.parquet import write_parquet
from icalib.core.run_folder import RunFolder, read_config, refuse_links
from icalib.core.storage import pull, remove
from icalib.core.yaml_text import write_mapping
from icalib.data.selection import Fraction, Limit
from icalib.metrics.metric import Direction
from icalib.sweeps.space import Pruner, Sampler

SWEEP_VERSION = 2
BEST_CONFIG = "best/config.yaml"

DRY_SCHEMA = pa.schema(
    [
        ("trial", pa.int32()),
        ("seed", pa.int32()),
        ("params", pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())]))),  # values as JSON
        ("num_pools_scored", pa.int64()),
        ("num_pseudo_pools", pa.int64()),
        ("num_pseudo_pairs", pa.int64()),
        ("num_selected_intents", pa.int64()),  # pairs that would be trained on with their predicted intents
        ("pseudo_accuracy", pa.float64()),  # fraction of pseudo-labelled pools that are right; null without gold
        ("pair_accuracy", pa.float64()),
        ("base_accuracy", pa.float64()),  # R@1 over all scored pools: the accuracy of selecting every pool
    ]
)


class SweepSettings(Settings):
    """The settings of a sweep, as sweep.yaml stores them."""

    space: str
    """The space's short name."""
    space_digest: str
    """Digest of the space's file, and of those of its metrics from outside: trials of an edited one don't belong to the
    same study.
    """
    method: str
    method_digest: str = ""
    """Digest of the method's settings before a trial's: with other code or defaults they are another method."""
    data: Stored
    data_digest: str
    """Digest of the pools: trials on others don't belong to the same study."""
    labelled: Fraction
    seeds: int = Field(ge=1)
    """Each trial runs with seeds 1 to this."""
    limit: Limit = Field(default={})
    settings: dict[str, Any] = Field(default={})
    """The changes by --set, which apply to every trial."""
    backbone: str
    resample_labels: bool = Field(default=False, exclude_if=lambda resamples: not resamples)
    experiment: str
    sampler: Sampler
    metrics: dict[str, Direction]
    """Validation metrics and their directions; the first is shown first."""
    pruner: Pruner
    command: str
    """The command line as it was last typed; after trials were run, one that runs trials."""


class Best(Settings):
    """The best trial of a sweep."""

    trial: int
    params: dict[str, Any]
    validation: dict[str, tuple[float, float]]
    """Mean and standard deviation over the seeds, by metric."""
    test: dict[str, tuple[float, float]]
    """The same on test, computed once, after the winner was chosen."""
    seeds: int
    config: str = BEST_CONFIG
    """The winner's settings, relative to the sweep folder."""


class SweepFolder:
    """Paths and tables of one sweep."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.settings_path = self.path / "sweep.yaml"
        self.journal_path = self.path / "study.journal"
        self.dry_path = self.path / "dry.parquet"
        self.best_config_path = self.path / BEST_CONFIG

    @classmethod
    def open(cls, path: str | Path) -> SweepFolder:
        """Open a sweep, finished or not; from an object store its models are not downloaded."""
        sweep = cls(path)
        pull(sweep.path, leave_out="checkpoints")
        if not sweep.exists:
            raise RunFolderError(
                f"{path} is not a sweep folder: it has no sweep.yaml. Name a folder that `icalib sweep` wrote."
            )
        sweep.check_version()
        refuse_links(sweep.path, ("trials.csv", "report.html"))
        return sweep

    def check_version(self) -> None:
        """Refuse a folder of another version."""
        version = read_config(self.settings_path).get("version")
        if version != SWEEP_VERSION:
            raise RunFolderError(
                f"{self.path} has sweep-folder version {version}, this icalib reads version {SWEEP_VERSION}. "
                "Use the icalib that wrote it, or use --fresh to recompute it."
            )

    @property
    def exists(self) -> bool:
        """Whether a sweep was started here."""
        return self.settings_path.is_file()

    @property
    def settings(self) -> SweepSettings:
        """The sweep's settings."""
        values = {name: value for name, value in read_config(self.settings_path).items() if name != "version"}
        return validated_file(self.settings_path, SweepSettings, values)

    def run_folder(self, trial: int, seed: int) -> RunFolder:
        """Return the run folder of a trial with a seed."""
        return RunFolder(self.path / "trials" / f"{trial}-s{seed}")

    def best_run(self, seed: int) -> RunFolder:
        """Return the winner's run folder with a seed."""
        return RunFolder(self.path / "best" / f"s{seed}")

    def best_config(self) -> str:
        """Return the winner's settings, as YAML."""
        with reading(self.best_config_path):
            return self.best_config_path.read_text(encoding="utf-8")

    def best(self) -> Best | None:
        """Return the winner of the trials; None until they are over, and where none was complete."""
        path = self.path / "best.json"
        return validated_file(path, Best, read_json(path)) if path.is_file() else None

    def forget_best(self) -> None:
        """Remove the winner's files; best.json goes first, since it refers to the others."""
        remove(self.path / "best.json")
        remove(self.best_config_path.parent)

    def write_settings(self, settings: SweepSettings) -> None:
        """Write sweep.yaml with the folder's version."""
        write_mapping(self.settings_path, {"version": SWEEP_VERSION, **settings.model_dump(mode="json")})

    def write_dry(self, rows: list[dict[str, Any]]) -> None:
        """Write dry.parquet, atomically."""
        write_parquet(self.dry_path, pa.Table.from_pylist(rows, schema=DRY_SCHEMA))

    def write_best(self, best: Best) -> None:
        """Write best.json, atomically."""
        write_json(self.path / "best.json", best.model_dump(mode="json"))
